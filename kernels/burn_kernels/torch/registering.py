"""Defines the operators that families declare: `register_operators` walks the registry of kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from burn_kernels.operators import Operator, as_given, leaf, like, nothing
from burn_kernels.spec import REGISTRY
from burn_kernels.torch.defining import define, differentiate, in_float32, or_reference, second

__all__ = ["Definition", "register_operators"]

_DEFINED: dict[str, Definition] = {}
_BACKWARDS: dict[str, Any] = {}
"""Backward operators by name: operators may share one."""


def register_operators() -> None:
    """Defines the operators of every registered kernel, those of a new one too."""
    for spec in REGISTRY.values():
        for op in spec.complete_operators():
            if op.name not in _DEFINED and not op.by_hand:
                _DEFINED[op.name] = Definition(op)


class Kept:
    """The values that a gradient keeps, by name: tensors as torch wants them kept, lists of them one by one.

    Places are worked out once: an operator that differentiates keeps values in each of its calls.
    """

    def __init__(self, names: list[str], given: list[str], kinds: Mapping[str, str]) -> None:
        there = [name for name in names if name in given]
        self.lacks_needs = len(there) < len(names)
        """The backward takes what only its own call knows, too: the gradients that are asked for."""
        self.tensors = [name for name in there if kinds.get(name, "Tensor").startswith("Tensor")]
        self.others = [name for name in there if name not in self.tensors]
        self.tensors_at = [given.index(name) for name in self.tensors]
        self.others_at = [given.index(name) for name in self.others]
        self.lists = any(kinds.get(name) == "Tensor[]" for name in self.tensors)

    def keep(self, ctx: Any, values: tuple[object, ...]) -> None:
        """Keeps what is named of all values."""
        tensors = [values[at] for at in self.tensors_at]
        if self.lists:
            ctx.counts = [len(x) if isinstance(x, list) else None for x in tensors]
            tensors = [x for value in tensors for x in (value if isinstance(value, list) else [value])]
        ctx.save_for_backward(*tensors)
        ctx.others = [values[at] for at in self.others_at]

    def values_of(self, ctx: Any) -> dict[str, Any]:
        """The values that `keep` kept; a list is a tuple."""
        tensors = ctx.saved_tensors
        if self.lists:
            rest = iter(tensors)
            tensors = [next(rest) if n is None else tuple(itertools.islice(rest, n)) for n in ctx.counts]
        values = dict(zip(self.tensors, tensors, strict=True))
        values.update(zip(self.others, ctx.others, strict=True))
        return values


class Definition:
    """An operator with its backward operator and the gradients of both, defined in torch's library."""

    def __init__(self, op: Operator) -> None:
        self.op = op
        self.names, self.results = list(op.arguments()), op.result_names
        self.saved, self.graded, self.laid = op.saved.split(), op.gradients.split(), op.laid.split()
        self.kinds = op.kinds()
        self.count = len(op.input_names)
        self.others = self.names[self.count :]
        self.straight = (
            self.names[: self.count] == op.input_names and "seed" not in self.names and op.options is as_given
        )
        self.graded_at = [self.names.index(name) for name in self.graded]
        self.need_names = [f"{name}_gradient" for name in self.graded]
        self.forward_keeps = Kept(self.saved, [*self.names, *self.results], self.kinds)
        self.backward_keeps = Kept([op.upstream, *self.saved], [op.upstream, *self.saved], self.kinds)
        self.launch = or_reference(op.name.replace("_backward", " backward"), *op.launchers())
        forward = define(op.schema, self.run, op.fake)
        if op.rule is not None:
            differentiate(forward, self.keep_forward, self.follow_rule)
        elif op.gradients:
            self.backward_title = f"{op.backward_name.removesuffix('_backward')} backward"
            self.launch_backward = or_reference(self.backward_title, *op.launchers(backward=True))
            if op.backward_name not in _BACKWARDS:
                _BACKWARDS[op.backward_name] = self.define_backward()
            self.backward = _BACKWARDS[op.backward_name]
            differentiate(forward, self.keep_forward, self.gradient)
        in_float32(forward, *op.autocast)

    # -- forward ---------------------------------------------------------------------------------------
    def run(self, *arguments: Any) -> object:
        """The results of the launcher, or of the reference past its limits, laid as the fake says."""
        if self.straight:
            values = self.launch(
                *arguments[: self.count], **dict(zip(self.others, arguments[self.count :], strict=True))
            )
        else:
            inputs, _, options = self.op.call_of(dict(zip(self.names, arguments, strict=True)))
            values = self.launch(*inputs, **options)
        if len(self.results) == 1:
            return self.place(values, arguments[0] if self.op.room is not None else None)
        values += (None,) * (len(self.results) - len(values))
        carries = self.op.carries(*arguments)
        return tuple(
            nothing(arguments[0], self.op.absent)
            if y is None
            else self.place(y, arguments[number] if number < carries else None)
            for number, y in enumerate(values)
        )

    def place(self, y: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
        """Returns y where its fake lies: as the operator's room for x, or in order."""
        if self.op.room is None or x is None:
            return y.contiguous()
        room = self.op.room(x)
        return y if y.stride() == room.stride() else room.copy_(y)

    # -- what a gradient keeps -------------------------------------------------------------------------
    def keep_forward(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keeps what the gradient takes."""
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.mark_non_differentiable(*outputs[self.op.carries(*inputs) :])
        ctx.set_materialize_grads(False)
        ctx.facts = self.op.facts(*inputs)
        self.forward_keeps.keep(ctx, (*inputs, *outputs))

    # -- gradient --------------------------------------------------------------------------------------
    def follow_rule(self, ctx: Any, *upstream: torch.Tensor | None) -> tuple[object, ...]:
        """The gradients by the operator's own rule."""
        assert self.op.rule is not None
        values = self.forward_keeps.values_of(ctx)
        if all(dy is None for dy in upstream):
            lists = {name: [None] * len(value) for name, value in values.items() if isinstance(value, tuple)}
            return tuple(lists.get(name) for name in self.names)
        gradient_of = dict(zip(self.graded, self.op.rule(values | {"facts": ctx.facts}, *upstream), strict=True))
        return tuple(gradient_of.get(name) for name in self.names)

    def gradient(self, ctx: Any, dy: torch.Tensor | None, *_: object) -> tuple[object, ...]:
        """The gradients by the backward operator."""
        if dy is None:
            return (None,) * len(self.names)
        values = self.forward_keeps.values_of(ctx)
        if self.forward_keeps.lacks_needs:
            needs = [bool(ctx.needs_input_grad[at]) for at in self.graded_at]
            values["needs"] = needs
            values.update(zip(self.need_names, needs, strict=True))
        grads = self.backward(dy, *[values[name] for name in self.saved])
        gradient_of = dict(zip(self.graded, grads if len(self.graded) > 1 else (grads,), strict=True))
        wanted = self.wanted(values)
        return tuple([gradient_of[name] if name in wanted else None for name in self.names])

    def wanted(self, values: Mapping[str, Any]) -> list[str]:
        """The names of the inputs whose gradients the backward computes: those that are there and asked for.

        A backward that is not told which gradients are asked for computes all of them.
        """
        pairs = zip(self.graded, self.need_names, strict=True)
        there = [name for name, need in pairs if values.get(need, True) and values.get(name, name) is not None]
        if "needs" not in values:
            return there
        return [name for name, needed in zip(self.graded, values["needs"], strict=True) if needed and name in there]

    # -- backward operator -----------------------------------------------------------------------------
    def define_backward(self) -> Any:
        """The backward operator, whose own gradient is taken through plain torch."""
        words = ", ".join(f"{self.kinds[name]} {name}" for name in self.saved)
        outputs = f"({', '.join(['Tensor'] * len(self.graded))})" if len(self.graded) > 1 else "Tensor"
        schema = f"{self.op.backward_name}(Tensor {self.op.upstream}, {words}) -> {outputs}"
        backward = define(schema, self.run_backward, self.fake_backward)
        differentiate(backward, self.keep_backward, self.second_gradient)
        return backward

    def run_backward(self, dy: torch.Tensor, *saved: object) -> object:
        """One gradient for each of the operator's `gradients`, an empty tensor where none is wanted."""
        values = dict(zip(self.saved, saved, strict=True))
        inputs, results, options = self.op.call_of(values)
        grads = self.launch_backward(dy, inputs, results, **options)
        gradient_of = dict(zip(self.op.input_names, grads, strict=False))

        def placed(which: str, x: torch.Tensor) -> torch.Tensor:
            if gradient_of[which] is None:
                raise RuntimeError(
                    f"{self.backward_title}: the launcher returned no gradient for an input that has one"
                )
            return self.place(gradient_of[which], x if which in self.laid else None)

        return self.answer(values, placed)

    def fake_backward(self, dy: object, *saved: object) -> object:
        """As `run_backward`, of tensors that hold nothing."""

        def room(which: str, x: torch.Tensor) -> torch.Tensor:
            return self.op.room(x) if self.op.room is not None and which in self.laid else like(x)

        return self.answer(dict(zip(self.saved, saved, strict=True)), room)

    def answer(self, values: Mapping[str, Any], gradient_of: Callable[[str, torch.Tensor], torch.Tensor]) -> object:
        """The results of the backward: gradients, by name and input, and empty tensors."""
        first = next(x for x in values.values() if isinstance(x, torch.Tensor))
        wanted = self.wanted(values)
        grads = tuple(
            gradient_of(name, values.get(name, first)) if name in wanted else nothing(first) for name in self.graded
        )
        return grads if len(grads) > 1 else grads[0]

    def keep_backward(self, ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
        """Keeps what the second gradient takes."""
        ctx.set_materialize_grads(False)
        self.backward_keeps.keep(ctx, inputs)

    def second_gradient(self, ctx: Any, *upstream: torch.Tensor | None) -> tuple[object, ...]:
        """The gradients of the backward's arguments, by plain torch."""
        values = self.backward_keeps.values_of(ctx)
        dy, wanted = values.pop(self.op.upstream), self.wanted(values)
        if self.op.by_reference:
            ddy, gradient_of = self.through_reference(dy, values, upstream)
        else:
            graded = [values[name] if name in wanted else None for name in self.graded]
            ddy, *grads = second(lambda *leaves: self.twin(values, leaves), dy, graded, upstream)
            gradient_of = dict(zip(self.graded, grads, strict=True))
        return ddy, *(gradient_of.get(name) for name in self.saved)

    def twin(self, values: Mapping[str, Any], leaves: tuple[torch.Tensor | None, ...]) -> torch.Tensor:
        """The first result in plain torch, of leaves in place of the inputs that have gradients."""
        assert self.op.twin is not None
        known = {name: value for name, value in values.items() if name in self.names} | self.op.recall(values)
        known |= {name: x for name, x in zip(self.graded, leaves, strict=True) if x is not None}
        inputs, _, options = self.op.call_of(known)
        return self.op.twin(*inputs, **options)

    def through_reference(
        self, dy: torch.Tensor, values: Mapping[str, Any], upstream: tuple[torch.Tensor | None, ...]
    ) -> tuple[torch.Tensor | None, dict[str, torch.Tensor | None]]:
        """The gradients of dy and of the tensors that are kept, from those of the reference's first gradients."""
        assert self.op.reference_gradient is not None
        asked = [(name, u) for name, u in zip(self.graded, upstream, strict=True) if u is not None]
        if not asked:
            return None, {}
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            leaves = {name: leaf(x) for name, x in values.items() if isinstance(x, torch.Tensor)}
            ddy = leaf(dy)
            inputs, results, options = self.op.call_of({**values, **leaves})
            grads = self.op.reference_gradient(ddy, inputs, results, **options)
            gradient_of = dict(zip(self.op.input_names, grads, strict=False))
            answers = torch.autograd.grad(
                [gradient_of[name] for name, _ in asked],
                [ddy, *leaves.values()],
                [u for _, u in asked],
                create_graph=again,
                allow_unused=True,
            )
        return answers[0], dict(zip(leaves, answers[1:], strict=True))
