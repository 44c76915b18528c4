"""Random models whose sizes depend on data: rows that grow and shrink in Loops, Ifs and Scans, and sequences of rows.

Values have a kind, and no known length: operators are drawn that fit every length, 0 among them.  Numbers are whole and
stay small, so runtimes must agree to the bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

__all__ = ["FlowModel"]

OPSET = 17
ELEMENTS = {"S": TensorProto.FLOAT, "V": TensorProto.FLOAT, "M": TensorProto.FLOAT, "I": TensorProto.INT64}
ELEMENTS |= {"J": TensorProto.INT64, "B": TensorProto.BOOL}
RANKS = {"S": 0, "V": 1, "M": 2, "I": 0, "J": 1, "B": 0}
"""S, V and M are floats without axes, in a row, in rows; I and J whole numbers; B is a truth, Q a sequence of V."""


class Value(NamedTuple):
    """A value of a graph."""

    name: str
    kind: str


def info(value: Value) -> Any:
    """The declaration of a value: its element type and its axes, of any size."""
    if value.kind == "Q":
        return helper.make_tensor_sequence_value_info(value.name, TensorProto.FLOAT, None)
    return helper.make_tensor_value_info(value.name, ELEMENTS[value.kind], [None] * RANKS[value.kind])


class FlowModel:
    """Draws one model.  `proto` is it, `inputs(n)` are values for it."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0
        kinds = ["V", "V", "S", "I", "J", "B", "M", *(["Q"] if self.rng.random() < 0.3 else [])]
        self.given = [Value(f"x{i}", kind) for i, kind in enumerate(kinds)]
        main = Scope(self, list(self.given), [], 0)
        for _ in range(self.rng.integers(2, 6)):
            main.step()
        for _ in range(self.rng.integers(1, 4)):
            main.control()
            main.step()
        computed = [x for x in main.own if x not in self.given]
        chosen = [computed[i] for i in self.rng.permutation(len(computed))[:5]]
        graph = helper.make_graph(
            main.nodes, "main", [info(x) for x in self.given], [info(x) for x in chosen], main.weights
        )
        self.proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

    def inputs(self, n: int) -> dict[str, Any]:
        """Values of the inputs, for rows of about n."""
        rng = self.rng
        draw = {
            "V": lambda: rng.integers(-4, 5, rng.integers(0, n + 1)).astype(np.float32),
            "S": lambda: np.array(rng.integers(-4, 5), np.float32),
            "I": lambda: np.array(rng.integers(0, 4), np.int64),
            "J": lambda: rng.integers(-4, 5, rng.integers(0, n + 1)).astype(np.int64),
            "B": lambda: np.array(rng.random() < 0.5),
            "M": lambda: rng.integers(-4, 5, (2, n)).astype(np.float32),
            "Q": lambda: [rng.integers(-4, 5, 2).astype(np.float32) for _ in range(2)],
        }
        return {x.name: draw[x.kind]() for x in self.given}


class Scope:
    """One graph that is being drawn."""

    def __init__(self, model: FlowModel, own: list[Value], outer: list[Value], depth: int) -> None:
        self.model, self.rng = model, model.rng
        self.own, self.outer, self.depth = own, outer, depth
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    # -- values ----------------------------------------------------------------------------------------------------
    def name(self) -> str:
        self.model.count += 1
        return f"v{self.model.count}"

    def node(self, op: str, inputs: list[Value | str], kind: str, **attributes: Any) -> Value:
        """Appends a node of one output."""
        result = Value(self.name(), kind)
        names = [x if isinstance(x, str) else x.name for x in inputs]
        self.nodes.append(helper.make_node(op, names, [result.name], **attributes))
        self.own.append(result)
        return result

    def constant(self, kind: str, values: Any) -> Value:
        """A weight or a Constant node, which is not drawn again."""
        array = np.asarray(values, helper.tensor_dtype_to_np_dtype(ELEMENTS[kind]))
        result = Value(self.name(), kind)
        if self.rng.random() < 0.5:
            self.weights.append(numpy_helper.from_array(array, result.name))
        else:
            self.nodes.append(helper.make_node("Constant", [], [result.name], value=numpy_helper.from_array(array)))
        return result

    def pick(self, kind: str) -> Value:
        """A value of a kind: of this graph, of one around, or a new constant."""
        choice = self.rng.random()
        for values in (self.own, self.outer) if choice < 0.6 else (self.outer, self.own):
            fit = [x for x in values if x.kind == kind]
            if fit and choice < 0.9:
                return fit[self.rng.integers(len(fit))]
        if kind == "Q":
            return self.node("SequenceConstruct", [self.pick("V") for _ in range(self.rng.integers(1, 3))], "Q")
        if kind == "M":  # of no size that onnxruntime could deduce
            row = self.node("Unsqueeze", [self.pick("V"), self.constant("J", [0])], "M")
            return self.node("Expand", [row, self.constant("J", [2, 1])], "M")
        size = tuple(self.rng.integers(0, 4, RANKS[kind]))
        return self.constant(kind, self.rng.random() < 0.5 if kind == "B" else self.rng.integers(-4, 5, size))

    def short(self, x: Value) -> Value:
        """At most seven elements, each below 17."""
        ends = [self.constant("J", [n]) for n in ((0, 7) if self.rng.random() < 0.8 else (-7, 2**40))]
        y = self.node("Slice", [x, *ends], x.kind)
        return self.bounded(y)

    def bounded(self, x: Value) -> Value:
        by = self.constant("I" if x.kind in "IJ" else "S", 17)
        return self.node("Mod", [x, by], x.kind, **({} if x.kind in "IJ" else {"fmod": 1}))

    def nonnegative(self, x: Value) -> Value:
        """Its remainder by 4, which is 0 to 3."""
        return self.node("Mod", [x, self.constant("I", 4)], "I")

    # -- plain operators -----------------------------------------------------------------------------------------------
    def step(self) -> None:
        """Appends an operator."""
        steps = [self.scaled, self.joined, self.total, self.length, self.compare, self.made, self.sliced, self.casted,
                 self.chosen, self.sequenced, self.taken, self.turned, self.picked]  # fmt: skip
        steps[self.rng.integers(len(steps))]()

    def scaled(self) -> None:
        kind, one = (("V", "S"), ("S", "S"), ("I", "I"), ("J", "I"), ("M", "S"))[self.rng.integers(5)]
        op = ("Add", "Sub", "Mul", "Max", "Min")[self.rng.integers(5)]
        pair = [self.pick(kind), self.pick(one)]
        self.bounded(self.node(op, pair if self.rng.random() < 0.7 else pair[::-1], kind))

    def joined(self) -> None:
        kind = ("V", "J", "V")[self.rng.integers(3)]
        self.short(self.node("Concat", [self.pick(kind) for _ in range(self.rng.integers(1, 4))], kind, axis=0))

    def total(self) -> None:
        kind, one = (("V", "S"), ("J", "I"), ("M", "V"), ("M", "S"))[self.rng.integers(4)]
        axes = [self.constant("J", [int(self.rng.integers(2))])] if one == "V" else []
        self.bounded(self.node("ReduceSum", [self.pick(kind), *axes], one, keepdims=0))

    def length(self) -> None:
        x = self.pick(("V", "J", "M", "Q")[self.rng.integers(4)])
        if x.kind == "Q":
            self.node("SequenceLength", [x], "I")
        elif self.rng.random() < 0.5:
            self.bounded(self.node("Size", [x], "I"))
        else:
            self.node("Shape", [x], "J")

    def compare(self) -> None:
        kind = ("S", "I")[self.rng.integers(2)]
        op = ("Less", "Greater", "Equal")[self.rng.integers(3)]
        y = self.node(op, [self.pick(kind), self.pick(kind)], "B")
        if self.rng.random() < 0.3:
            self.node(("And", "Or", "Xor")[self.rng.integers(3)], [y, self.pick("B")], "B")

    def made(self) -> None:
        """Rows as long as a number says."""
        n = self.nonnegative(self.pick("I"))
        choice = self.rng.integers(3)
        if choice == 0:
            self.node("Range", [self.constant("I", 0), n, self.constant("I", 1)], "J")
            return
        size = self.node("Unsqueeze", [n, self.constant("J", [0])], "J")
        if choice == 1:
            self.node("Expand", [self.node("Unsqueeze", [self.pick("S"), self.constant("J", [0])], "V"), size], "V")
        else:
            fill = numpy_helper.from_array(np.array([3], np.float32))
            self.node("ConstantOfShape", [size], "V", value=fill)

    def sliced(self) -> None:
        kind = ("V", "J")[self.rng.integers(2)]
        ends = [self.node("Unsqueeze", [self.pick("I"), self.constant("J", [0])], "J") for _ in range(2)]
        step = self.constant("J", [int((1, 2, -1)[self.rng.integers(3)])])
        self.node("Slice", [self.pick(kind), *ends, self.constant("J", [0]), step], kind)

    def casted(self) -> None:
        pairs = {"S": "I", "I": "S", "V": "J", "J": "V", "B": "I"}
        kind = ("S", "I", "V", "J", "B")[self.rng.integers(5)]
        self.node("Cast", [self.pick(kind)], pairs[kind], to=ELEMENTS[pairs[kind]])

    def chosen(self) -> None:
        kind, one = (("V", "S"), ("S", "S"), ("I", "I"), ("J", "I"))[self.rng.integers(4)]
        self.node("Where", [self.pick("B"), self.pick(kind), self.pick(one)], kind)

    def sequenced(self) -> None:
        self.node("SequenceInsert", [self.pick("Q"), self.pick("V")], "Q")

    def taken(self) -> None:
        """A value of a sequence that has one, or all of them, or the sequence without one."""
        full = self.node("SequenceInsert", [self.pick("Q"), self.pick("V")], "Q")
        choice = self.rng.integers(3)
        if choice == 0:
            self.short(self.node("ConcatFromSequence", [full], "V", axis=0))
            return
        at = self.node("Mod", [self.pick("I"), self.node("SequenceLength", [full], "I")], "I")
        if choice == 1:
            self.node("SequenceAt", [full, at], "V")
        else:
            self.node("SequenceErase", [full, at], "Q")

    def turned(self) -> None:
        x = self.pick("M")
        choice = self.rng.integers(3)
        if choice == 0:
            self.short(self.node("Reshape", [x, self.constant("J", [-1])], "V"))
        elif choice == 1:
            self.node("SplitToSequence", [self.pick("V"), self.constant("I", 2)], "Q", axis=0)
        else:
            rows = [self.node("Unsqueeze", [y, self.constant("J", [0])], "M") for y in [self.pick("V")] * 2]
            self.node("Concat", rows, "M", axis=0)

    def picked(self) -> None:
        row, one = (("V", "S"), ("J", "I"))[self.rng.integers(2)]
        more = self.node("Concat", [self.pick(row), self.constant(row, [5])], row, axis=0)
        self.node("Gather", [more, self.constant("I", int(self.rng.integers(-1, 1)))], one, axis=0)

    # -- graphs within nodes -------------------------------------------------------------------
    def inner(self, kinds: list[str]) -> Scope:
        own = [Value(self.name(), kind) for kind in kinds]
        return Scope(self.model, own, [*self.outer, *self.own], self.depth + 1)

    def fill(self) -> None:
        for _ in range(self.rng.integers(1, 5)):
            self.step()
        if self.depth < 3 and self.rng.random() < 0.5:
            self.control()
        for _ in range(self.rng.integers(0, 3)):
            self.step()

    def result(self, kind: str, seen: set[str], inputs: list[Value]) -> Value:
        """A value of the kind that this graph makes, and that is no output yet."""
        fit = [x for x in self.own if x.kind == kind and x not in inputs and x.name not in seen]
        if not fit or self.rng.random() < 0.2:
            fit = [self.node("Identity", [self.pick(kind)], kind)]
        chosen = fit[self.rng.integers(len(fit))]
        seen.add(chosen.name)
        return chosen

    def graph(self, name: str, inputs: list[Value], outputs: list[Value]) -> Any:
        return helper.make_graph(self.nodes, name, [info(x) for x in inputs], [info(x) for x in outputs], self.weights)

    def results(self, op: str, inputs: list[Any], kinds: list[str], **attributes: Any) -> None:
        outputs = [Value(self.name(), kind) for kind in kinds]
        names = [x if isinstance(x, str) else x.name for x in inputs]
        self.nodes.append(helper.make_node(op, names, [x.name for x in outputs], **attributes))
        self.own += outputs

    def control(self) -> None:
        """An If, a Loop or a Scan."""
        (self.if_, self.loop, self.loop, self.scan)[self.rng.integers(4)]()

    def kinds(self, low: int, choices: str = "VVSIJBQM") -> list[str]:
        return [choices[self.rng.integers(len(choices))] for _ in range(self.rng.integers(low, 4))]

    def if_(self) -> None:
        kinds, condition, branches = self.kinds(1), self.pick("B"), []
        for name in ("then", "else"):
            scope, seen = self.inner([]), set[str]()
            scope.fill()
            branches.append(scope.graph(name, [], [scope.result(kind, seen, []) for kind in kinds]))
        self.results("If", [condition], kinds, then_branch=branches[0], else_branch=branches[1])

    def loop(self) -> None:
        kinds = self.kinds(0, "VVSIJQM")
        state = [self.pick(kind) for kind in kinds]
        choice = self.rng.integers(4)
        trips: Any = "" if choice == 0 else self.nonnegative(self.pick("I"))
        go: Any = self.pick("B") if choice == 0 or self.rng.random() < 0.4 else ""
        scope = self.inner(["I", "B", *kinds])
        inputs, seen = list(scope.own), set[str]()
        scope.fill()
        on = scope.node("Less", [inputs[0], scope.constant("I", int(self.rng.integers(0, 3)))], "B")
        if self.rng.random() < 0.5:
            on = scope.node("And", [on, scope.pick("B")], "B")
        elif choice:
            on = scope.node("Identity", [inputs[1]], "B")
        seen.add(on.name)
        nexts = [scope.result(kind, seen, inputs) for kind in kinds]
        stacked = self.kinds(0 if nexts else 1, "SI")
        outputs = [scope.result(kind, seen, inputs) for kind in stacked]
        body = scope.graph("body", inputs, [on, *nexts, *outputs])
        after = [*kinds, *[{"S": "V", "I": "J"}[kind] for kind in stacked]]
        self.results("Loop", [trips, go, *state], after, body=body)

    def scan(self) -> None:
        """Along a row, or along either axis of rows; with at least one step, as onnxruntime asks."""
        source = ("V", "J", "M")[self.rng.integers(3)]
        one = {"V": "S", "J": "I", "M": "V"}[source]
        x = self.pick(source)
        if source != "M":
            x = self.node("Concat", [x, self.constant(source, [2, 1])], source, axis=0)
        else:
            x = self.node("Pad", [x, self.constant("J", [0, 0, 1, 1])], "M")
        kinds = self.kinds(0, "SI")
        scope = self.inner([*kinds, one])
        inputs, seen = list(scope.own), set[str]()
        scope.fill()
        nexts = [scope.result(kind, seen, inputs) for kind in kinds]
        stacked = self.kinds(1, "SI")
        outputs = [scope.result(kind, seen, inputs) for kind in stacked]
        after = [*kinds, *[{"S": "V", "I": "J"}[kind] for kind in stacked]]
        if one == "V":
            outputs.append(scope.node("Neg", [inputs[-1]], "V"))
            after.append("M")
        ways = [int(self.rng.integers(2)) for _ in outputs]
        places = [0 if x.kind != "V" else int(self.rng.integers(-2, 2)) for x in outputs]
        body = scope.graph("body", inputs, [*nexts, *outputs])
        axis = int(self.rng.integers(-2, 2)) if source == "M" else 0
        attributes = {"scan_input_axes": [axis], "scan_input_directions": [int(self.rng.integers(2))]}
        attributes |= {"scan_output_axes": places, "scan_output_directions": ways}
        self.results("Scan", [*[self.pick(k) for k in kinds], x], after, body=body, num_scan_inputs=1, **attributes)
