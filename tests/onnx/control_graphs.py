"""Random models with If, Loop, Scan and functions within one another.

Numbers are whole and stay small, so every sum and product is exact and runtimes must agree to the bit.  Every value has
a name of its own; `share_names` gives the same model with few names, each used wherever the standard's scopes allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

F, L, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
NUMPY = {F: np.float32, L: np.int64, B: np.bool_}
OPSET = 17
POOL = (*"abcdefghkmpqrstuvwz", "weight", "item.1", "onnx::Add_7", "W", "state_in", "cond")
"""The few names of `share_names`."""


class Value(NamedTuple):
    """A value of a graph; sizes are numbers, or names of what is not known when the model is made."""

    name: str
    dtype: int
    shape: tuple[int | str, ...]

    def info(self, *, shaped: bool = True) -> Any:
        """Its declaration, with or without the shape."""
        sizes = [None if isinstance(size, str) and size != "n" else size for size in self.shape]
        return helper.make_tensor_value_info(self.name, self.dtype, sizes if shaped else None)


class ControlModel:
    """Draws one model.  `proto` is it, `inputs(n)` are values for a batch of n."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.sizes = 0
        self.functions: list[Any] = []
        self.count = 0
        shapes: list[tuple[int | str, ...]] = [("n", 3), (4, 3), (3,), ()]
        chosen = [shapes[i] for i in self.rng.permutation(4)[: self.rng.integers(1, 4)]]
        arguments = [Value(f"x{i}", F, shape) for i, shape in enumerate([("n", 3), *chosen])]
        arguments += [Value("flag", B, ()), Value("times", L, ()), Value("ids", L, ("n",))]
        self.given = arguments
        main = Scope(self, arguments, 0)
        for _ in range(self.rng.integers(3, 9)):
            main.step()
        for _ in range(self.rng.integers(1, 3)):
            main.control()
        for _ in range(self.rng.integers(0, 4)):
            main.step()
        tops = [main.own[i] for i in self.rng.permutation(len(main.own))[:3]]
        last = main.own[-1]
        results = [main.node("Identity", [value], value.dtype, value.shape) for value in dict.fromkeys([*tops, last])]
        graph = helper.make_graph(
            main.nodes, "main", [value.info() for value in arguments], [value.info() for value in results], main.weights
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("mine", 1)]
        self.proto = helper.make_model(graph, opset_imports=opsets, functions=self.functions, ir_version=8)

    def inputs(self, n: int) -> dict[str, Any]:
        """Values of the inputs: whole numbers, so few that comparisons go either way."""
        feeds: dict[str, Any] = {}
        for value in self.given:
            shape = tuple(n if size == "n" else size for size in value.shape)
            if value.name == "times":
                feeds[value.name] = np.array(self.rng.integers(0, 4), np.int64)
            else:
                feeds[value.name] = np.asarray(self.rng.integers(-3, 4, shape)).astype(NUMPY[value.dtype])
        return feeds

    def size(self) -> str:
        """A name for a size that is not known."""
        self.sizes += 1
        return f"size{self.sizes}"


class Scope:
    """One graph that is being drawn: it reads what lies around it, and makes its own."""

    def __init__(self, model: ControlModel, inputs: list[Value], depth: int) -> None:
        self.model = model
        self.rng = model.rng
        self.own = list(inputs)
        self.outer: list[Value] = []
        self.depth = depth
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    # -- names and values ------------------------------------------------------------------------------
    def name(self) -> str:
        """A name that nothing has."""
        self.model.count += 1
        return f"v{self.model.count}"

    def node(self, op: str, inputs: list[Value | None], dtype: int, shape: Any, **attributes: Any) -> Value:
        """Appends a node of one output."""
        result = Value(self.name(), dtype, tuple(shape))
        names = ["" if x is None else x.name for x in inputs]
        self.nodes.append(helper.make_node(op, names, [result.name], **attributes))
        self.own.append(result)
        return result

    def constant(self, array: Any) -> Value:
        """A weight of this graph, or a Constant node."""
        data = np.asarray(array)
        kind = {"f": F, "i": L, "b": B}[data.dtype.kind]
        result = Value(self.name(), kind, data.shape)
        if self.rng.random() < 0.5:
            self.weights.append(numpy_helper.from_array(data, result.name))
        else:
            self.nodes.append(helper.make_node("Constant", [], [result.name], value=numpy_helper.from_array(data)))
        return result

    def numbers(self, shape: tuple[int, ...], dtype: int = F) -> Value:
        """A constant of whole numbers."""
        return self.constant(np.asarray(self.rng.integers(-3, 4, shape)).astype(NUMPY[dtype]))

    def pick(self, *dtypes: int, rank: int | None = None) -> Value:
        """A value of one of these types, mostly of this graph."""
        for values in (self.own, self.outer) if self.rng.random() < 0.6 else (self.outer, self.own):
            fit = [x for x in values if x.dtype in dtypes and (rank is None or len(x.shape) == rank)]
            if fit:
                return fit[self.rng.integers(len(fit))]
        dtype = dtypes[0]
        return self.numbers(tuple(int(size) for size in self.rng.integers(1, 4, rank or 0)), dtype)

    def bounded(self, x: Value) -> Value:
        """x kept small."""
        by = self.constant(np.asarray(17, NUMPY[x.dtype]))
        return self.node("Mod", [x, by], x.dtype, x.shape, **({"fmod": 1} if x.dtype == F else {}))

    def truth(self) -> Value:
        """A condition, of data or of the model's own."""
        choice = self.rng.integers(5)
        if choice == 0:
            return self.pick(B, rank=0)
        if choice == 1:
            return self.constant(np.array(bool(self.rng.integers(2))))
        x = self.pick(F)
        total = self.node("ReduceSum", [x], F, (), keepdims=0)
        return self.node("Greater", [total, self.numbers(())], B, ())

    # -- plain operators -------------------------------------------------------------------------------------
    def step(self) -> Value:
        """A plain operator."""
        kinds = [self.binary, self.unary, self.product, self.reduction, self.comparison, self.choice, self.shaping]
        return kinds[self.rng.integers(len(kinds))]()

    def binary(self) -> Value:
        x = self.pick(F, L)
        if self.rng.random() < 0.5:
            same = [y for y in (*self.own, *self.outer) if y.dtype == x.dtype and y.shape in (x.shape, ())]
            y = same[self.rng.integers(len(same))] if same else x
        else:
            last = x.shape[-1:] if x.shape and isinstance(x.shape[-1], int) else ()
            y = self.numbers(last, x.dtype)  # type: ignore[arg-type]
        op = ("Add", "Sub", "Mul", "Max", "Min")[self.rng.integers(5)]
        return self.bounded(self.node(op, [x, y], x.dtype, x.shape))

    def unary(self) -> Value:
        x = self.pick(F, L)
        op = ("Neg", "Abs", "Identity", "Sign")[self.rng.integers(4)]
        return self.node(op, [x], x.dtype, x.shape)

    def product(self) -> Value:
        x = self.pick(F, rank=2)
        inner = x.shape[-1]
        if not isinstance(inner, int):
            return self.unary()
        w = self.numbers((inner, 3))
        return self.bounded(self.node("MatMul", [x, w], F, (x.shape[0], 3)))

    def reduction(self) -> Value:
        x = self.pick(F)
        if not x.shape:
            return self.unary()
        axis = int(self.rng.integers(len(x.shape)))
        keep = int(self.rng.integers(2))
        rest = (*x.shape[:axis], *((1,) if keep else ()), *x.shape[axis + 1 :])
        if isinstance(x.shape[axis], str) and x.shape[axis] != "n":  # may be 0: the largest of none is an error
            axes = self.constant(np.array([axis]))
            return self.bounded(self.node("ReduceSum", [x, axes], F, rest, keepdims=keep))
        return self.node("ReduceMax", [x], F, rest, axes=[axis], keepdims=keep)

    def comparison(self) -> Value:
        x = self.pick(F, L)
        return self.node("Greater", [x, self.numbers((), x.dtype)], B, x.shape)

    def choice(self) -> Value:
        x = self.pick(F, L)
        same = [y for y in (*self.own, *self.outer) if y.dtype == x.dtype and y.shape == x.shape]
        test = [y for y in (*self.own, *self.outer) if y.dtype == B and y.shape in (x.shape, ())]
        y = same[self.rng.integers(len(same))] if same else x
        c = test[self.rng.integers(len(test))] if test else self.truth()
        return self.node("Where", [c, x, y], x.dtype, x.shape)

    def shaping(self) -> Value:
        x = self.pick(F, L)
        choice = self.rng.integers(4)
        if choice == 0 and len(x.shape) == 2:
            return self.node("Transpose", [x], x.dtype, x.shape[::-1], perm=[1, 0])
        if choice == 1 and x.shape:
            first = self.constant(np.array([0]))
            y = self.node("Unsqueeze", [x, first], x.dtype, (1, *x.shape))
            return self.node("Squeeze", [y, first], x.dtype, x.shape)
        if choice == 2 and x.shape and isinstance(x.shape[-1], int):
            y = self.numbers((1,), x.dtype)
            end = len(x.shape) - 1
            wide = self.node("Add", [x, y], x.dtype, x.shape)
            return self.bounded(self.node("Concat", [x, wide], x.dtype, (*x.shape[:-1], 2 * x.shape[-1]), axis=end))
        other = L if x.dtype == F else F
        return self.node("Cast", [x], other, x.shape, to=other)

    # -- graphs within nodes ---------------------------------------------------------------------------------
    def inner(self, inputs: list[tuple[int, Any]]) -> Scope:
        """A graph that lies here."""
        scope = Scope(self.model, [Value(self.name(), dtype, tuple(shape)) for dtype, shape in inputs], self.depth + 1)
        scope.outer = [*self.outer, *self.own]
        return scope

    def filled(self, scope: Scope) -> None:
        """Draws a few operators of an inner graph."""
        for _ in range(self.rng.integers(1, 4)):
            scope.step()
        if scope.depth < 3 and self.rng.random() < (0.45, 0.35, 0.3)[scope.depth - 1]:
            scope.control()
        for _ in range(self.rng.integers(0, 2)):
            scope.step()

    def matching(self, scope: Scope, like: tuple[int, Any]) -> Value:
        """A value that the inner graph makes of this type and shape; a weight or an input of it as it is at times."""
        dtype, shape = like
        fit = [x for x in scope.own if x.dtype == dtype and x.shape == tuple(shape)]
        if fit and self.rng.random() < 0.8:
            return fit[self.rng.integers(len(fit))]
        if all(isinstance(size, int) for size in shape) and self.rng.random() < 0.5:
            return scope.numbers(tuple(shape), dtype)
        around = [x for x in (*scope.outer, *scope.own) if x.dtype == dtype and x.shape == tuple(shape)]
        if not around:  # a constant of the graph that asks
            return scope.numbers(tuple(shape), dtype)
        return scope.node("Identity", [around[self.rng.integers(len(around))]], dtype, shape)

    def graph(self, scope: Scope, name: str, inputs: list[Value], outputs: list[Value], *, fixed: int = 0) -> Any:
        """The inner graph; an output that stands there twice goes through Identity.

        Shapes of inputs beyond the first `fixed` are declared or not.
        """
        results, seen = [], set()
        for value in outputs:
            if value.name in seen:
                value = scope.node("Identity", [value], value.dtype, value.shape)
            seen.add(value.name)
            results.append(value)
        return helper.make_graph(
            scope.nodes,
            name,
            [x.info(shaped=i < fixed or bool(self.rng.random() < 0.7)) for i, x in enumerate(inputs)],
            [value.info() for value in results],
            scope.weights,
        )

    def results(self, op: str, inputs: list[Value | None], kinds: list[tuple[int, Any]], **attributes: Any) -> None:
        """Appends a node of several outputs."""
        outputs = [Value(self.name(), dtype, tuple(shape)) for dtype, shape in kinds]
        names = ["" if x is None else x.name for x in inputs]
        self.nodes.append(helper.make_node(op, names, [value.name for value in outputs], **attributes))
        self.own += outputs

    def control(self) -> None:
        """An If, a Loop, a Scan, or a call of a function with one within."""
        (self.if_, self.if_, self.loop, self.loop, self.scan, self.call)[self.rng.integers(6)]()

    def if_(self) -> None:
        kinds = []
        for _ in range(self.rng.integers(1, 3)):
            like = self.pick(F, L)
            kinds.append((like.dtype, like.shape))
        condition = self.truth()
        branches = []
        for name in ("then", "else"):
            scope = self.inner([])
            self.filled(scope)
            branches.append(self.graph(scope, name, [], [self.matching(scope, kind) for kind in kinds]))
        self.results("If", [condition], kinds, then_branch=branches[0], else_branch=branches[1])

    def loop(self) -> None:
        state = list({x.name: x for x in [self.pick(F, L, B) for _ in range(self.rng.integers(0, 3))]}.values())
        growing = bool(self.rng.random() < 0.2)
        if growing:
            state.append(self.pick(F, rank=1))
        kinds: list[tuple[int, Any]] = [(x.dtype, x.shape) for x in state]
        if growing:
            kinds[-1] = (F, (self.model.size(),))
        choice = self.rng.integers(4)
        trips = None if choice == 0 else self.constant(np.array(self.rng.integers(0, 4)))
        if choice == 3:
            trips = next((x for x in (*self.own, *self.outer) if x.name == "times"), trips)
        go = self.truth() if trips is None or self.rng.random() < 0.4 else None
        scope = self.inner([(L, ()), (B, ()), *kinds])
        inputs = list(scope.own)
        self.filled(scope)
        if trips is None or self.rng.random() < 0.3:  # at most two more iterations
            least = scope.constant(np.array(int(self.rng.integers(0, 2))))
            on = scope.node("Less", [inputs[0], least], B, ())
        else:
            on = scope.node("Identity", [inputs[1]], B, ())
        nexts = [self.matching(scope, kind) for kind in kinds]  # onnxruntime counts on in an iteration number handed on
        nexts = [scope.node("Identity", [x], x.dtype, x.shape) if x in inputs[:2] else x for x in nexts]
        if growing:
            nexts[-1] = scope.node("Concat", [inputs[-1], scope.numbers((1,))], F, (self.model.size(),), axis=0)
        stacked = [x for x in scope.own[len(inputs) :] if not any(isinstance(s, str) and s != "n" for s in x.shape)]
        chosen = [stacked[i] for i in self.rng.permutation(len(stacked))[: self.rng.integers(0, 3)]]
        if not nexts and not chosen:
            chosen = [scope.node("Identity", [inputs[0]], L, ())]
        body = self.graph(scope, "body", inputs, [on, *nexts, *chosen], fixed=2)
        length = self.model.size()
        after = [*kinds, *[(x.dtype, (length, *x.shape)) for x in chosen]]
        self.results("Loop", [trips, go, *state], after, body=body)

    def scan(self) -> None:
        first = self.pick(F, rank=2)
        axis = int(self.rng.integers(2))
        length = first.shape[axis]
        if isinstance(length, str) and length != "n":
            return
        scanned, axes = [first], [axis]
        for x in (*self.own, *self.outer):
            if len(scanned) < 2 and x.shape and x.shape[0] == length and x.name != first.name:
                scanned.append(x)
                axes.append(0)
        state = [x for x in [self.pick(F, L) for _ in range(self.rng.integers(0, 3))] if x.name]
        state = list({x.name: x for x in state}.values())
        kinds = [(x.dtype, x.shape) for x in state]
        parts = [(x.dtype, (*x.shape[:at], *x.shape[at + 1 :])) for x, at in zip(scanned, axes, strict=True)]
        scope = self.inner([*kinds, *parts])
        inputs = list(scope.own)
        self.filled(scope)
        nexts = [self.matching(scope, kind) for kind in kinds]  # onnxruntime forgets a state that is handed on as it is
        nexts = [scope.node("Identity", [x], x.dtype, x.shape) if x in inputs else x for x in nexts]
        stacked = [x for x in scope.own[len(inputs) :] if not any(isinstance(s, str) and s != "n" for s in x.shape)]
        chosen = [stacked[i] for i in self.rng.permutation(len(stacked))[: self.rng.integers(0, 3)]]
        if not nexts and not chosen:
            chosen = [scope.node("Identity", [inputs[-1]], inputs[-1].dtype, inputs[-1].shape)]
        body = self.graph(scope, "body", inputs, [*nexts, *chosen])
        places = [int(self.rng.integers(len(x.shape) + 1)) for x in chosen]
        after = [*kinds]
        for x, at in zip(chosen, places, strict=True):
            after.append((x.dtype, (*x.shape[:at], length, *x.shape[at:])))
        ways = {"scan_input_axes": axes, "scan_input_directions": [int(i) for i in self.rng.integers(0, 2, len(axes))]}
        if chosen:
            ways |= {"scan_output_axes": places}
            ways |= {"scan_output_directions": [int(i) for i in self.rng.integers(0, 2, len(chosen))]}
        self.results("Scan", [*state, *scanned], after, body=body, num_scan_inputs=len(scanned), **ways)

    def call(self) -> None:
        """A function of the model whose names are those of everything else."""
        x = self.pick(F)
        name = self.name()
        scope = Scope(self.model, [Value(self.name(), F, x.shape)], self.depth + 1)
        if scope.depth < 3:
            scope.if_()
        scope.step()
        y = self.matching(scope, (F, x.shape))
        if y is scope.own[0]:
            y = scope.node("Neg", [y], F, x.shape)
        for weight in scope.weights:  # functions have no weights
            scope.nodes.insert(0, helper.make_node("Constant", [], [weight.name], value=weight))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("mine", 1)]
        self.model.functions.append(
            helper.make_function("mine", name, [scope.own[0].name], [y.name], scope.nodes, opsets)
        )
        result = Value(self.name(), F, x.shape)
        self.nodes.append(helper.make_node(name, [x.name], [result.name], domain="mine"))
        self.own.append(result)


# -- names ---------------------------------------------------------------------------------------------------------
def share_names(proto: Any, seed: int) -> Any:
    """The same model, named anew from few names: graphs beside one another share them, and later outer values too.

    Inputs and weights of an inner graph may hide an outer value that nothing within reads.
    """
    model = type(proto)()
    model.CopyFrom(proto)
    draw = np.random.default_rng(seed)
    _rename_graph(model.graph, {}, {value.name: value.name for value in model.graph.input}, draw)
    for function in model.functions:
        own: dict[str, str] = {}
        for name in function.input:
            own[name] = _free(own, draw)
        _rename_nodes(function.node, {}, own, draw)
        function.input[:] = [own[name] for name in function.input]
        function.output[:] = [own[name] for name in function.output]
    return model


def _free(taken: dict[str, str], draw: Any) -> str:
    names = set(taken.values())
    free = [name for name in POOL if name not in names]
    return str(draw.choice(free)) if free else f"more{len(names)}"


def _rename_graph(graph: Any, outer: dict[str, str], own: dict[str, str], draw: Any) -> None:
    read = set(_reads(graph))
    needed = {outer[old] for old in read if old in outer}  # one name may be that of a value and of one that it hides
    unread = [new for new in dict.fromkeys(outer.values()) if new not in needed]
    for value in (*graph.input, *graph.initializer):
        hidden = [name for name in unread if name not in own.values()]
        hides = outer and hidden and draw.random() < 0.2
        own.setdefault(value.name, str(draw.choice(hidden)) if hides else _free({**outer, **own}, draw))
        value.name = own[value.name]
    _rename_nodes(graph.node, outer, own, draw)
    for value in graph.output:
        value.name = own.get(value.name) or outer[value.name]


def _rename_nodes(nodes: Any, outer: dict[str, str], own: dict[str, str], draw: Any) -> None:
    for node in nodes:
        node.input[:] = [name and (own.get(name) or outer[name]) for name in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_graph(attribute.g, {**outer, **own}, {}, draw)
        for name in node.output:
            own[name] = _free({**outer, **own}, draw)
        node.output[:] = [own[name] for name in node.output]


def _reads(graph: Any) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _reads(attribute.g)
    yield from (value.name for value in graph.output)
