"""Functions of scores, traced: a Python function of one score becomes a Graph of scalars, and what it captures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn, final

from burn_torch.backend import Autodiff, NdArray
from burn_torch.backend.base import Backend
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, DTypeError, TraceError
from burn_torch.core.frames import told, user_line
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.reasons import Unfusible
from burn_torch.fusion.body.scalars import INDEX, is_scalar_operation, walk
from burn_torch.graph.ir import Graph, Input, Literal, Node
from burn_torch.graph.passes import dead_code
from burn_torch.graph.trace import Trace
from burn_torch.ops.comparison import lower
from burn_torch.ops.op import Call
from burn_torch.ops.selection import cast, mask_where
from burn_torch.ops.value import Executor, Primitive
from burn_torch.tensor.tensor import Tensor

__all__ = ["ScoreFunction", "Traced", "trace_mask", "trace_score"]

ScoreFunction = Callable[..., Tensor]
"""score(s, b, h, q, k) or mask(b, h, q, k), each argument a tensor without axes."""


class Traced(NamedTuple):
    """A function as the attribute of a row, and the tensors that it captures; whether it reads b and h."""

    body: str
    captured: tuple[Tensor, ...]
    by_batch: bool
    by_head: bool


@final
class _Outside:
    """A primitive of another backend."""

    __slots__ = ("primitive", "source")

    def __init__(self, primitive: Primitive, source: Executor) -> None:
        self.primitive: Final = primitive
        self.source: Final = source


@final
class _Session:
    """The session of a stack that dies with it, as a decorator asks for it."""

    ended: Final = False

    def decorated(self, real: Backend, make: Callable[[], Backend]) -> Backend:
        """A new stack."""
        stack = make()
        stack.session, stack.real = self, real
        return stack


@final
class _Body(Backend):
    """A leaf that writes a Graph.  Tensors from outside become inputs: they are what a function captures.

    depth  above every stack, so that tensors of these are lifted onto it
    """

    name: Final = "scores"
    depth = 1 << 20
    lasting = False
    version_expression: Final = "0"

    def __init__(self, like: Tensor) -> None:
        self.trace: Final = Trace()
        self.session = _Session()
        self.real = NdArray()  # names the stack that a tape over this one stands for; nothing runs there
        self._like: Final = like
        self._inputs: Final[dict[tuple[int, int], Primitive]] = {}
        self.captured: Final[list[Tensor]] = []
        """Their order is that of their inputs, which come after those of the function."""

    def execute(self, call: Call, inputs: Sequence[Primitive]) -> Sequence[Primitive]:
        """Writes a Call.  Raises: TraceError for one that is not element by element."""
        if not is_scalar_operation(call):
            raise _refusal(f"{call.op.name} of {', '.join(str(spec) for spec in call.specs)}")
        return self.trace.execute(call, [self.slot(x, spec) for x, spec in zip(inputs, call.specs, strict=True)])

    def compile(self, graph: Graph, donate: object = ()) -> Callable[..., Sequence[Primitive]]:
        """A function that writes the nodes of a graph."""
        return self.trace.compile(graph)

    def lift(self, primitive: Primitive, source: Executor) -> Primitive:
        """A tensor that the function captures; it becomes an input where a Call says what its spec is."""
        return primitive if source is self else _Outside(primitive, source)

    def slot(self, x: Primitive, spec: object) -> Primitive:
        """The slot that a Call reads; a captured tensor becomes an input."""
        if x.__class__ is not _Outside:
            return x
        known = self._inputs.get((id(x.source), id(x.primitive)))
        if known is None:
            assert isinstance(spec, TensorSpec)
            self.captured.append(Tensor(x.source, x.primitive, spec))
            known = self._inputs[id(x.source), id(x.primitive)] = self.trace.input(spec).primitive
        return known

    def from_data(self, data: TensorData, place: str) -> Primitive:
        """Data that the function makes itself."""
        backend = self._like.backend
        assert isinstance(backend, Backend)
        return self.lift(backend.from_data(data, place), backend)

    def into_data(self, primitive: Primitive) -> NoReturn:
        """Refuses: there is no data."""
        raise _refusal("the value of a score, which was read")

    def spec(self, primitive: Primitive) -> NoReturn:
        """Refuses: no shape depends on data."""
        raise _refusal("an operation whose shape depends on data")

    def sync(self, place: str) -> None:
        """Nothing runs."""

    def copy(self, primitive: Primitive) -> Primitive:
        """The value itself."""
        return primitive


def _refusal(what: str) -> TraceError:
    return TraceError(
        "a function of scores computes one number from another",
        given=f"{what}, at {user_line(3) or 'an unknown line'}",
        expected="element-wise operations on the score and on indices, and captured tensors read at indices",
        mend="compute the rest outside: table = ...; lambda s, b, h, q, k: s + table[h, q - k + n]",
    )


def trace_score(function: ScoreFunction, like: Tensor) -> Traced:
    """A function (s, b, h, q, k) -> s, with its slope.  like: the query.

    Raises: TraceError, DTypeError, ArgumentError where it does something else.
    """
    dtype = DType.F64 if like.dtype is DType.F64 else DType.F32
    body = _Body(like)
    taped = Autodiff(body)
    score, *indices = (_input(body, like, kind) for kind in (dtype, *[INDEX] * 4))
    tracked = Tensor(taped, taped.lift(score.primitive, body), score.spec).require_grad()
    changed = _call("score", function, (tracked, *indices), dtype)
    inner = changed.inner() if changed.backend is taped else changed
    slope = None
    if changed.backend is taped and taped.is_tracked(changed.primitive):
        slope = tracked.grad(changed.backward())
    if slope is None:
        slope = inner.zeros_like()
    return _close_trace("score", body, [inner, slope], 5, score.spec)


def trace_mask(function: ScoreFunction, like: Tensor) -> Traced:
    """A function (b, h, q, k) -> bool.  like: a tensor on the device.

    Raises: as `trace_score`.
    """
    body = _Body(like)
    indices = [_input(body, like, INDEX) for _ in range(4)]
    seen = _call("mask", function, indices, DType.BOOL)
    return _close_trace("mask", body, [seen], 4, indices[0].spec.with_dtype(DType.BOOL))


def _input(body: _Body, like: Tensor, dtype: DType) -> Tensor:
    value = body.trace.input(TensorSpec.of((), dtype, like.spec.place))
    return Tensor(body, value.primitive, value.spec)


def _call(what: str, function: ScoreFunction, arguments: Sequence[Tensor], dtype: DType) -> Tensor:
    result = function(*arguments)
    if not isinstance(result, Tensor) or result.spec.numel != 1 or result.dtype is not dtype:
        raise told(
            DTypeError if isinstance(result, Tensor) else ArgumentError,
            f"the {what} function did not return one {dtype}",
            given=str(result.spec) if isinstance(result, Tensor) else f"a {type(result).__name__}",
            expected=f"a tensor of one {dtype}, made of its arguments"
            + ("" if dtype is DType.BOOL else ": scores are float32, float64 of float64"),
            mend="compare: lambda b, h, q, k: q >= k"
            if dtype is DType.BOOL
            else "cast what it is computed from: lambda s, b, h, q, k: s + (k - q).float() * slopes[h]",
        )
    return result


def _close_trace(what: str, body: _Body, results: Sequence[Tensor], count: int, spec: TensorSpec) -> Traced:
    slots = [body.slot(body.lift(x.primitive, x.backend), x.spec) for x in results]
    whole = body.trace.graph([Tensor(body, slot, spec) for slot in slots])
    graph = dead_code(_without_wraps(whole, count)).dense()
    try:
        walk(graph, [None] * count, _Nothing())
    except Unfusible as fault:
        raise _refusal(fault.detail) from None
    read = {i for node in graph.nodes for i in node.inputs if isinstance(i, int)} | set(graph.outputs)
    b, h = [i for i, _ in graph.inputs[count - 4 : count - 2]]
    return Traced(graph.to_json(), tuple(body.captured), b in read, h in read)


def _without_wraps(graph: Graph, count: int) -> Graph:
    """The same without what counts negative indices from the end, where the index is an argument: no size is left."""
    arguments = {i for i, _ in graph.inputs[count - 4 : count]}
    makers = {node.outputs[0]: node for node in graph.nodes}
    plain = {i for i, node in makers.items() if node.call.op is cast and node.inputs[0] in arguments}
    new: dict[Input, Input] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        negative = makers.get(node.inputs[1]) if node.call.op is mask_where else None  # type: ignore[arg-type]  # ids
        index = node.inputs[0] if node.inputs else None
        wraps = negative is not None and negative.call.op is lower and negative.inputs == (index, Literal(0))
        if wraps and index in plain:
            new[node.outputs[0]] = index
            continue
        nodes.append(Node(node.call, [new.get(i, i) for i in node.inputs], node.outputs, node.origin))
    return Graph(graph.inputs, nodes, graph.outputs)


@final
class _Nothing:
    """Computes nothing: only asks whether a function can be walked."""

    def compute(self, node: Node, operands: Sequence[object]) -> None:
        """Nothing."""

    def lookup(self, captured: int, index: Sequence[object]) -> None:
        """Nothing."""
