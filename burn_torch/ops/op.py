"""One row of the table, and a row at given input specs.

    @op(torch=torch.exp, numpy=np.exp, pointwise="exp({0})", cost="cheap", samples=uniform(-3, 3, (3, 4)))
    def exp(x: TensorSpec) -> TensorSpec: ...

The decorated function is the rule of shapes and element types.  Its signature says what the inputs are: positional
parameters are run-time inputs (`TensorSpec`, `TensorSpec | None`, `Number`, `Operand` = tensor or number, `*xs`),
keyword-only ones are static attributes (`ops/signature.py`).  `Op.bind` runs the rule once for each combination and
interns the result, a `Call`; everything that is static is derived from the Call once and kept on it.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias, final

from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType, DTypeClass
from burn_torch.core.errors import ArgumentError, BurnTorchError, DeviceError, DTypeError, ShapeError, explain
from burn_torch.core.frames import at_user_line
from burn_torch.core.spec import NUMBER_SPECS, DTypeFault, NumberSpec, Spec, TensorSpec
from burn_torch.ops.faults import RuleFault
from burn_torch.ops.laws import Law, LawT
from burn_torch.ops.registry import Registry
from burn_torch.ops.signature import Signature
from burn_torch.ops.template import require_template
from burn_torch.ops.value import Executor, Value

__all__ = ["REGISTRY", "Call", "Candidate", "Op", "PerCall", "op", "pairing_of", "unlisted"]

Candidate: TypeAlias = Callable[..., Any]
"""How a leaf, or a rule of a row, computes: from primitives or values, numbers and None to one result or several."""

REGISTRY: Final = Registry()

_CALLS_PER_OP: Final = 512
_lock: Final = threading.RLock()


class PerCall:
    """A leaf's candidate that is built once for each Call: `torch=PerCall(build)`, `build(call)(*inputs)`.

    None at some Calls says that the decomposition computes, or that there is no in-place form.
    """

    def __init__(self, build: Callable[[Call], Any]) -> None:
        self.build: Final = build


@final
class Call:
    """A row at given input specs and attributes.  Interned: equal Calls that live are one object.

    `results` has one spec an output; None where the shape depends on the data (`barrier` rows), or where the output
    is not computed (an attribute `live` says so).  `plans` and `memo` keep what leaves and decorators derive from it.
    `is_input` says that the result is input 0 itself, `aliases` that results may share memory with it.
    """

    __slots__ = (
        "__weakref__",
        "aliases",
        "attrs",
        "is_input",
        "memo",
        "multiple",
        "op",
        "pairing",
        "plans",
        "result",
        "results",
        "specs",
    )

    def __init__(
        self, op: Op, specs: tuple[Spec | None, ...], attrs: dict[str, Any], results: Sequence[Any], multiple: bool
    ) -> None:
        self.op: Final = op
        self.specs: Final = specs
        self.attrs: Final = attrs
        self.results: Final[tuple[Any, ...]] = tuple(results)
        self.result: Final[Any] = self.results[0] if self.results else None
        self.multiple: Final = multiple
        self.plans: Final[dict[Any, Candidate]] = {}
        self.memo: Final[dict[Any, Any]] = {}
        self.is_input: Final[bool] = op.same is not None and op.same(self)
        self.aliases: Final[bool] = op.view and (self.is_input or not op.only_if_same)
        self.pairing: Final = pairing_of(specs) if op.pointwise is not None else None
        """Two inputs of which it pairs each element of one with all of the other; see `tensor/broadcasting.py`."""

    @property
    def is_number(self) -> bool:
        """Tells if it computes a host number from host numbers."""
        return isinstance(self.result, NumberSpec)

    def tensor(self, position: int) -> TensorSpec:
        """The spec of an input that is known to be a tensor."""
        spec = self.specs[position]
        assert isinstance(spec, TensorSpec), f"input {position} of {self} is no tensor"
        return spec

    def __repr__(self) -> str:
        attrs = "".join(f", {name}={value}" for name, value in self.attrs.items())
        return f"{self.op.name}({', '.join(map(str, self.specs))}{attrs})"

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (_rebind, (self.op.name, self.specs, self.attrs))


def pairing_of(specs: Sequence[Spec | None]) -> tuple[TensorSpec, TensorSpec] | None:
    """The first two tensors of which each element of one meets all of the other; None where there are none."""
    tensors = [spec for spec in specs if isinstance(spec, TensorSpec)]
    return next((pair for pair in combinations(tensors, 2) if _is_pairing(*pair)), None)


def _is_pairing(x: TensorSpec, y: TensorSpec) -> bool:
    """Tells if an axis of the tensor of fewer axes lies along a 1 of the other, which has an axis of that size too."""
    if x.ndim == y.ndim:
        return False
    small, large = (x.shape, y.shape) if x.ndim < y.ndim else (y.shape, x.shape)
    if any(size.__class__ is not int for size in (*small, *large)):  # sizes of a symbolic trace: seen before
        return False
    apart = {a for a, b in zip(reversed(small), reversed(large), strict=False) if b == 1 and a > 1}
    return any(size in apart for size in large)


def _row(name: str) -> Op:
    return REGISTRY[name]


def _rebind(name: str, specs: tuple[Spec | None, ...], attrs: dict[str, object]) -> Call:
    return REGISTRY[name].bind(specs, attrs)


@final
class Op:
    """A row of the table.  Called with values, it computes; see the fields in `op`."""

    def __init__(self, rule: Candidate, fields: Mapping[str, Any], namespace: str | None) -> None:
        self.name: Final = f"{namespace}::{rule.__name__}" if namespace else rule.__name__
        self.rule: Final = rule
        self.__doc__ = rule.__doc__
        self.__name__ = rule.__name__
        self.__module__ = rule.__module__
        self.torch: Final = fields["torch"]
        self.numpy: Final = fields["numpy"]
        self.scalar: Final[Candidate | None] = fields["scalar"]
        self.inplace: Final = fields["inplace"]
        self.pointwise: Final[str | None] = fields["pointwise"]
        self.view: Final[bool] = bool(fields["view"])
        self.only_if_same: Final[bool] = fields["view"] == "same"
        self.same: Final[Callable[[Call], bool] | None] = fields["same"]
        self.merge: Final[Callable[[Call, Call, bool], Mapping[str, Any] | None] | None] = fields["merge"]
        self.packed: Final[str] = fields["packed"] or _packed_by_default(fields)
        self.laws: Final[dict[type, Law]] = {type(law): law for law in fields["laws"]}
        self.runs: Final[Callable[[Mapping[str, Any]], tuple[bool, ...]] | None] = fields["runs"]
        self.precision: Final[str] = fields["precision"]
        self.statistics: Final[frozenset[int]] = frozenset(fields["statistics"])
        self.cost: Final[str] = fields["cost"]
        self.random: Final[bool] = fields["random"]
        self.barrier: Final[bool] = fields["barrier"]
        self.collective: Final[str | None] = fields["collective"]
        self.nondifferentiable: Final[bool] = fields["nondifferentiable"]
        self.commutative: Final[bool] = fields["commutative"]
        self.samples: Final = fields["samples"]
        self.source: Final[str | None] = fields["source"]
        self.decomposition: Candidate | None = fields["decomposition"]
        self.gradient_rule: Candidate | None = None
        self.batch_rule: Candidate | None = None
        self.device_numbers: Callable[[Call, Sequence[Any]], Any] | None = fields["device_numbers"]
        self.signature: Final = Signature(rule)
        self.__signature__: Final = self.signature.python
        """The rule's signature, which `help` and `inspect.signature` show."""
        if namespace and self.pointwise is not None:
            require_template(self.name, self.pointwise, [name for name, _ in self.signature.inputs])
        self.calls: Final[dict[Any, Call]] = {}
        """Calls by what a caller has at hand; see `remember`.  Read without a lock."""
        self._interned: Final[weakref.WeakValueDictionary[Any, Call]] = weakref.WeakValueDictionary()

    # -- declaring -----------------------------------------------------------------
    def gradient(self, rule: Candidate) -> Candidate:
        """Declares the gradient: `rule(g, y, *inputs, **attrs)` returns one entry an input, None for no gradient.

        Written with table ops on values.  With several outputs g and y are tuples, an absent gradient is None.  The
        rule may branch on shapes, attributes and `g is None`, never on values; NotImplemented falls to the
        decomposition.
        """
        if self.nondifferentiable:
            raise ArgumentError(
                f"op: {self.name}: a nondifferentiable row has no gradient",
                given=f"@op(nondifferentiable=True) and @{self.__name__}.gradient",
                expected="one of the two",
                mend="leave nondifferentiable=True out",
            )
        self.gradient_rule = rule
        return rule

    def law(self, kind: type[LawT]) -> LawT | None:
        """The row's law of one kind, if it has one."""
        return self.laws.get(kind)  # type: ignore[return-value]  # each is kept under its own type

    def batched(self, rule: Candidate) -> Candidate:
        """Declares how to compute many samples at once: `rule(n, many, *inputs, **attrs)` returns the outputs.

        Inputs with `many[i]` have the n samples on a further axis in front, and so have all outputs.  Written with
        table ops on values; NotImplemented falls to the decomposition, then to a loop over the samples.  Element-wise
        rows need none.
        """
        self.batch_rule = rule
        return rule

    def decomposes(self, body: Candidate) -> Candidate:
        """Declares the decomposition: `body(*inputs, **attrs)` computes the outputs with other rows."""
        self.decomposition = body
        return body

    # -- binding --------------------------------------------------------------------
    def bind(self, specs: Sequence[Spec | None], attrs: Mapping[str, Any]) -> Call:
        """This row at input specs and attributes: the one place where rules of shape and type run.

        Raises: ShapeError, DTypeError, DeviceError in the row's words.
        """
        specs = tuple(specs)
        complete = self.signature.complete(self.name, attrs)
        key = (specs, tuple(complete.values()))
        call = self._interned.get(key)
        if call is None:
            results, multiple = self._apply_rule(specs, complete)
            with _lock:
                call = self._interned.get(key)
                if call is None:
                    call = Call(self, specs, complete, results, multiple)
                    self._interned[key] = call
        return call

    def remember(self, key: object, call: Call) -> Call:
        """Keeps a Call under a key that a fast path can build without binding.  Bounded: drops the older half.

        One that pairs elements is not kept: each line that calls it is looked at.
        """
        if call.pairing is not None:
            return call
        with _lock:
            if len(self.calls) >= _CALLS_PER_OP:
                for old in list(self.calls)[: _CALLS_PER_OP // 2]:
                    del self.calls[old]
            self.calls[key] = call
        return call

    def _apply_rule(self, specs: tuple[Spec | None, ...], attrs: dict[str, Any]) -> tuple[Sequence[Any], bool]:
        tensors = [spec for spec in specs if isinstance(spec, TensorSpec)]
        if not tensors and specs and self.scalar is not None and all(isinstance(s, NumberSpec) for s in specs):
            ones = [{"int": 1, "float": 1.0, "bool": True}[spec.kind] for spec in specs if isinstance(spec, NumberSpec)]
            return (NUMBER_SPECS[type(self.scalar(*ones))],), False
        try:
            self.signature.check(self.name, specs)
            if len({spec.place for spec in tensors}) > 1:
                raise RuleFault(
                    DeviceError,
                    "the inputs lie on different devices",
                    "all inputs on one device",
                    f"move them first, for example with .to_device({tensors[0].place!r})",
                )
            results = self.rule(*specs, **attrs)
        except RuleFault as fault:
            described = self.signature.describe(specs, attrs)
            message = explain(f"{self.name}: {fault.what}", given=described, expected=fault.expected, mend=fault.mend)
            raise at_user_line(fault.error(message)) from None
        except DTypeFault as fault:
            spec, dtypes = fault.args
            name = self.signature.name_of(specs, spec)
            message = explain(
                f"{self.name}: {name} has an element type that the operation does not take",
                given=self.signature.describe(specs, attrs),
                expected=f"{name} of type {dtypes}: {', '.join(sorted(d.name for d in dtypes.members))}",
                mend=f"cast it first, for example {name}.{_cast_hint(dtypes)}",
            )
            raise at_user_line(DTypeError(message)) from None
        multiple = isinstance(results, tuple)
        specs_out = results if multiple else (results,)
        for spec in specs_out:
            if isinstance(spec, TensorSpec) and spec.numel.__class__ is int and spec.numel * spec.dtype.itemsize >> 63:
                raise self._too_many(spec, specs, attrs)
        return specs_out, multiple

    def _too_many(self, result: TensorSpec, specs: tuple[Spec | None, ...], attrs: dict[str, Any]) -> ShapeError:
        return at_user_line(
            ShapeError(
                f"{self.name}: the result is larger than any memory",
                given=self.signature.describe(specs, attrs),
                expected=f"a result of fewer than 2^63 bytes; this one is {result.shape} {result.dtype}",
                mend="check how the sizes are worked out",
            )
        )

    # -- computing ---------------------------------------------------------------------
    def __call__(self, *inputs: Any, **attrs: Any) -> Any:
        """Computes on the backend of the inputs: a value, or a tuple of values where the row has several outputs."""
        backend: Executor | None = None
        kind: type[Value] = Value
        same = alike = True
        for x in inputs:
            if isinstance(x, Value) and x.spec.__class__ is TensorSpec:
                if backend is None:
                    backend, kind = x.backend, x.__class__
                    continue
                if x.__class__ is not kind:
                    alike = False
                if x.backend is not backend:
                    same = False
                    if _outranks(x.backend, backend):
                        backend = x.backend
        if backend is None:
            return self._without_tensors(inputs, attrs)
        if not same:
            inputs = tuple(
                lift(x, backend) if isinstance(x, Value) and x.spec.__class__ is TensorSpec else x for x in inputs
            )
        if not alike:
            mixed = next((mixed for x in inputs if (mixed := getattr(x, "_mixed", None)) is not None), None)
            if mixed is not None:
                return mixed(self, backend, inputs, attrs)
        return self.run(backend, kind, inputs, attrs)

    def run(self, backend: Executor, kind: type[Value], inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """Computes on a given backend; results are made as `kind(backend, primitive, spec)`."""
        specs: list[Spec | None] = []
        primitives: list[Any] = []
        for x in inputs:
            if isinstance(x, Value):
                specs.append(x.spec)
                primitives.append(x.primitive)
            elif x is None:
                specs.append(None)
                primitives.append(None)
            else:
                spec = NUMBER_SPECS.get(x.__class__)
                if spec is None:
                    raise self._not_an_input(x)
                specs.append(spec)
                primitives.append(x)
        raw = (*specs, *attrs.items())
        try:
            call = self.calls.get(raw) or self.remember(raw, self.bind(specs, attrs))
        except TypeError as err:  # an attribute is a list: `bind` makes it a tuple
            call = self._bound_anew(specs, attrs, err)
        outputs = backend.execute(call, primitives)
        if not call.multiple:
            return kind(backend, outputs[0], call.result or backend.spec(outputs[0]))
        return tuple(
            None if p is None else kind(backend, p, spec or backend.spec(p))
            for p, spec in zip(outputs, call.results, strict=True)
        )

    def _bound_anew(self, specs: Sequence[Spec | None], attrs: Mapping[str, object], err: TypeError) -> Call:
        if isinstance(err, BurnTorchError):
            raise err
        try:
            return self.bind(specs, attrs)
        except TypeError as fault:
            if isinstance(fault, BurnTorchError):
                raise
            raise at_user_line(
                DTypeError(
                    f"{self.name}: an argument has the wrong type",
                    given=", ".join(f"{name} {value!r:.60}" for name, value in attrs.items()),
                    expected=", ".join(f"{name}: {kind}" for name, (kind, _) in self.signature.attrs.items()),
                    mend=f"pass whole numbers where sizes and axes are meant ({fault})",
                )
            ) from fault

    def _without_tensors(self, inputs: Sequence[object], attrs: Mapping[str, object]) -> Any:
        symbols = [x for x in inputs if isinstance(x, Value)]
        if symbols:  # arithmetic on traced numbers
            return self.run(symbols[0].backend, Value, inputs, attrs)
        if self.scalar is not None and all(x.__class__ in NUMBER_SPECS for x in inputs):
            return self.scalar(*inputs)
        raise DTypeError(
            f"{self.name}: no input is a tensor",
            given=", ".join(type(x).__name__ for x in inputs) or "nothing",
            expected="at least one tensor, whose backend computes the operation",
            mend="wrap the data first, for example Tensor.from_data([...], device)",
        )

    def _not_an_input(self, x: object) -> DTypeError:
        return at_user_line(
            DTypeError(
                f"{self.name}: an input is neither a tensor nor a number",
                given=f"{type(x).__module__}.{type(x).__qualname__}",
                expected=f"{self.name}({self.signature}), tensors and Python numbers",
                mend="Tensor.from_torch, Tensor.from_data or float(...) make one of it",
            )
        )

    def __repr__(self) -> str:
        return f"<op {self.name}({self.signature})>"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (_row, (self.name,))


def _outranks(one: Executor, other: Executor) -> bool:
    """Tells if `one` takes the values of `other` as constants: a traced stack before real ones, then the higher.

    A trace refuses tensors from outside in words of its own.
    """
    return (_is_traced(one), one.depth) > (_is_traced(other), other.depth)


def _is_traced(backend: Executor) -> bool:
    return getattr(backend, "session", None) is not None


def lift(value: Value, backend: Executor) -> Value:
    """`value` on `backend`, as a constant if it comes from an inner stack.  Raises: DeviceError for any other."""
    if value.backend is backend:
        return value
    return type(value)(backend, backend.lift(value.primitive, value.backend), value.spec)


def _cast_hint(dtypes: DTypeClass) -> str:
    if DType.F32 in dtypes:
        return "float()"
    return "int()" if DType.I64 in dtypes else "bool()"


def _packed_by_default(fields: Mapping[str, Any]) -> str:
    if fields["view"] is True:
        return "any"
    return "follows" if fields["pointwise"] is not None else "contiguous"


_WORDS: Final[dict[str, tuple[Any, ...]]] = {
    "cost": ("cheap", "expensive"),
    "view": (False, True, "same"),
    "packed": (None, "contiguous", "follows", "dense", "input", "order", "any"),
    "precision": ("low", "high", "follow"),
    "collective": (None, "blocks", "starts"),
}


# -- declaring a row ----------------------------------------------------------------------------
@checked
def op(
    *,
    torch: Candidate | PerCall | None = None,
    numpy: Candidate | PerCall | None = None,
    scalar: Candidate | None = None,
    inplace: Candidate | PerCall | None = None,
    pointwise: str | None = None,
    decomposition: Candidate | None = None,
    view: bool | str = False,
    same: Callable[[Call], bool] | None = None,
    merge: Callable[[Call, Call, bool], Mapping[str, Any] | None] | None = None,
    packed: str | None = None,
    laws: Sequence[Law] = (),
    runs: Callable[[Mapping[str, Any]], tuple[bool, ...]] | None = None,
    precision: str = "follow",
    statistics: Sequence[int] = (),
    cost: str = "expensive",
    random: bool = False,
    barrier: bool = False,
    collective: str | None = None,
    nondifferentiable: bool = False,
    commutative: bool = False,
    samples: Any = (),
    source: str | None = None,
    device_numbers: Callable[[Call, Sequence[Any]], Any] | None = None,
    namespace: str | None = None,
) -> Callable[[Candidate], Op]:
    """Declares a row.  Users' rows enter by the same door, with a namespace.

    torch, numpy       how each leaf computes it: `f(*inputs, **attrs)`, or `PerCall(build)` with `build(call)(*inputs)`
    scalar             the same on Python numbers, where it makes sense there
    inplace            torch's in-place form, for programs that may write over input 0: gives the bits of `torch`;
                       `PerCall(build)` may build None, or an `Over` (`ops/torch_code.py`) where others are written over
    pointwise          how a generated kernel writes it, "exp({0})"
    decomposition      the same with other rows, for leaves without a candidate and for gradients without a rule
    view               the result may alias input 0; "same": only where it is input 0 itself
    same               says of which Calls the result is input 0 itself
    merge              `merge(inner, outer, exact)`: the attributes with which this row does both Calls at once, None
                       where it cannot; `exact` asks for the same layout in memory too
    packed             how the result lies in memory: "contiguous" if all tensor inputs do, and dense in any case;
                       "follows": like that, and as input 0 where that is dense and has the result's spec; "dense":
                       with the axes in some order; "input": as input 0; "order": as input 0 with the axes in another
                       order; "any".  Default: views "any", element-wise rows "follows", others "contiguous"
    laws               what holds of the results, see `ops/laws.py`
    runs               of a row over equal runs of tensors, such as an optimizer's: for each run of inputs whether a run
                       of outputs takes its place
    precision          under `precision="bfloat16"`: "low" computes in bf16, "high" in f32, "follow" as its inputs are
    statistics         positions of inputs that are float32 beside half types: they stay so under "bfloat16"
    cost               "cheap" to compute again (a checkpoint may drop the output) or "expensive"
    random, barrier    draws from a key; has a shape that depends on the data
    collective         needs other processes: "blocks" until they have come, or "starts" a transfer that another row
                       waits for, and is launched as soon as its inputs exist
    nondifferentiable  no output carries a gradient
    commutative        the first two inputs may be swapped
    samples            inputs that can expose a mistake, see `ops/samples.py`
    source             where the formula is from
    device_numbers     how torch computes it with numbers that lie on the device, see `backend/libtorch/forms`
    """
    fields = {name: value for name, value in locals().items() if name != "namespace"}
    for name, allowed in _WORDS.items():
        if fields[name] not in allowed:
            words = ", ".join(repr(word) for word in allowed)
            raise ArgumentError(
                f"op: {name} has no such value",
                given=f"{name}={fields[name]!r}",
                expected=words,
                mend="leave it out: the default is right for most rows",
            )

    def declare(rule: Candidate) -> Op:
        row = Op(rule, fields, namespace)
        REGISTRY.enter(row)
        return row

    return declare


def unlisted(rule: Candidate, **fields: Any) -> Op:
    """A row that is in no table: what a backend makes of another one for itself.  Fields as `op` takes them."""
    defaults = {name: p.default for name, p in inspect.signature(op).parameters.items() if name != "namespace"}
    return Op(rule, {**defaults, **fields}, None)
