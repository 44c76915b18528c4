"""Defines the operators that families declare as `torch.ops.burn_kernels.<name>`; `register_operators` defines all.

Each has a fake implementation (so that torch.compile and torch.export trace it as one call), a gradient, which is an
operator too, and where torch's own operator has one an autocast rule.  The gradient of a gradient is taken through
plain torch.  On a CPU, and past the limit of a kernel, the reference computes; the second is counted and said.

Operators return tensors of their own, never a view of an input, and write to no input; the steps of optimizers do,
whose names end in `_` and whose schemas say what they write.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from burn_kernels.errors import KernelArgumentError, KernelLimitError
from burn_kernels.launch import check
from burn_kernels.operators import Operator, leaf, like, nothing, second
from burn_kernels.spec import REGISTRY
from burn_kernels.torch.defining import note_limit

__all__ = ["Definition", "register_operators"]

_LIBRARY = torch.library.Library("burn_kernels", "DEF")
_DEFINED: dict[str, Definition] = {}
_BACKWARDS: dict[str, Any] = {}
"""Backward operators by name: operators may share one."""


def register_operators() -> None:
    """Defines the operators of every registered kernel, those of a new one too."""
    for spec in REGISTRY.values():
        for op in [*spec.complete_operators(), *([] if spec.step is None else [spec.step])]:
            if op.name not in _DEFINED:
                _DEFINED[op.name] = Definition(op)


def define(schema: str, run: Callable[..., object], fake: Callable[..., object]) -> Any:
    """Defines an operator for all devices; `fake` makes results that have a shape and hold nothing."""
    name = _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,)).split("::")[-1]

    @functools.wraps(fake)
    def checked_fake(*arguments: object) -> object:
        refuse_tangents(name)
        refuse_meta(name, [argument.name for argument in op._schema.arguments], arguments)
        return fake(*arguments)

    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"burn_kernels::{name}", checked_fake, lib=_LIBRARY)
    op = getattr(torch.ops.burn_kernels, name).default
    return op


def refuse_tangents(name: str) -> None:
    """Raises while torch differentiates forward: torch would leave the tangents out without a word."""
    if forward_ad._current_level >= 0:
        raise KernelArgumentError(
            f"{name}: no rule for forward-mode differentiation",
            given="a call within torch.func.jvp, torch.func.jacfwd or torch.autograd.forward_ad",
            expected="gradients of any order by torch.autograd",
            mend="take torch's own operation there: burn_kernels.torch.unpatch(model)",
        )


def refuse_meta(op: str, names: Sequence[str], arguments: Sequence[object]) -> None:
    """Raises KernelDeviceError where some tensors lie on the meta device: torch would give results of no content."""
    tensors: dict[str, torch.Tensor] = {}
    for name, value in zip(names, arguments, strict=True):
        values = value if isinstance(value, list) else [value]
        # a seed is read on the CPU, wherever the others lie
        tensors |= {
            f"{name}{n or ''}": x for n, x in enumerate(values) if isinstance(x, torch.Tensor) and name != "seed"
        }
    if any(x.is_meta for x in tensors.values()):
        check(op, tensors, {}, alike=())


def differentiate(op: Any, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    """Gives an operator its gradient: `setup(ctx, inputs, output)` and `backward(ctx, *grads)` as torch has them."""
    torch.library.register_autograd(op._name, backward, setup_context=setup, lib=_LIBRARY)


class Kept:
    """The values that a gradient keeps, by name: tensors as torch wants them kept, lists of them one by one.

    Places are worked out once: an operator that differentiates keeps values in each of its calls.
    """

    def __init__(self, op: Operator, names: list[str], values: list[str]) -> None:
        kinds, there = {op.upstream: "Tensor", **op.kinds()}, [name for name in names if name in values]
        self.lacks_needs = len(there) < len(names)
        """The backward takes what only its own call knows, too: the gradients that are asked for."""
        self.tensors = [name for name in there if kinds.get(name, "").startswith("Tensor")]
        self.others = [name for name in there if name not in self.tensors]
        self.tensors_at = [values.index(name) for name in self.tensors]
        self.others_at = [values.index(name) for name in self.others]
        self.lists = any(kinds.get(name) == "Tensor[]" for name in self.tensors)

    def keep(self, ctx: Any, values: Sequence[object]) -> None:
        """Keeps what is named of all values."""
        ctx.set_materialize_grads(False)
        tensors = [*map(values.__getitem__, self.tensors_at)]
        if self.lists:
            ctx.counts = [len(x) if isinstance(x, list) else None for x in tensors]
            tensors = [x for value in tensors for x in (value if isinstance(value, list) else [value])]
        ctx.save_for_backward(*tensors)
        ctx.others = [*map(values.__getitem__, self.others_at)]

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
    """An operator with its backward operator and the gradients of both, defined in torch's library.

    Its calls are part of what each launch costs the host: they make no function calls that a loop can spare.
    """

    def __init__(self, op: Operator) -> None:
        self.op = op
        kinds = op.arguments()
        self.names, self.results = list(kinds), op.result_names
        self.saved, self.graded, self.laid = op.saved.split(), op.gradients.split(), op.laid.split()
        self.count = len(op.input_names)
        self.others = self.names[self.count :]
        self.straight = self.names[: self.count] == op.input_names and "seed" not in kinds and op.options is None
        self.graded_at = [self.names.index(name) for name in self.graded]
        self.need_names = [f"{name}_gradient" for name in self.graded]
        self.title = op.name.replace("_backward", " backward")
        self.launch, self.reference = op.launchers()
        forward = define(op.schema, self.run, op.fake)
        if op.gradients:
            facts = ["facts"] if op.facts is not None else []
            self.forward_keeps = Kept(op, [*self.saved, *facts], [*self.names, *self.results, *facts])
            asks = self.forward_keeps.lacks_needs
            self.always = not asks and "Tensor?" not in [kinds[n] for n in self.graded if n in self.saved]
            """True if each gradient is computed in each call."""
            differentiate(forward, self.keep_forward, self.gradient if op.rule is None else self.follow_rule)
            if op.rule is None:
                self.backward_title = f"{op.backward_name.removesuffix('_backward')} backward"
                self.launch_backward, self.reference_backward = op.launchers(backward=True)
                self.backward_keeps = Kept(op, [op.upstream, *self.saved], [op.upstream, *self.saved])
                if op.backward_name not in _BACKWARDS:
                    _BACKWARDS[op.backward_name] = self.define_backward()
                self.backward = _BACKWARDS[op.backward_name]
        # as torch's own: these sum many numbers, and autocast hands them over in float32, on a CPU the losses alone
        for device in op.autocast:
            torch.library.register_autocast(forward._name, device, torch.float32, lib=_LIBRARY)

    # -- forward ---------------------------------------------------------------------------------------
    def run(self, *arguments: Any) -> object:
        """The results of the launcher, or of the reference past its limits, laid as the fake says."""
        if forward_ad._current_level >= 0:
            refuse_tangents(self.op.name)
        if self.straight:
            inputs, options = arguments[: self.count], dict(zip(self.others, arguments[self.count :], strict=True))
        else:
            inputs, _, options = self.op.call_of(dict(zip(self.names, arguments, strict=True)))
        try:
            values = self.launch(*inputs, **options)
        except KernelLimitError as error:
            note_limit(self.title, error)
            values = self.reference(*inputs, **options)
        room = self.op.room
        if len(self.results) == 1:
            return values.contiguous() if room is None else self.place(values, arguments[0])
        if not self.results:
            return None
        answers, carried = [], 0 if room is None else self.op.carried(*arguments)
        for number in range(len(self.results)):
            y = values[number] if number < len(values) else None
            if y is None:
                y = nothing(arguments[0], self.op.absent)
            answers.append(self.place(y, arguments[number]) if number < carried else y.contiguous())
        return tuple(answers)

    def place(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Returns y where its fake lies: as the operator's room for x."""
        assert self.op.room is not None
        room = self.op.room(x)
        return y if y.stride() == room.stride() else room.copy_(y)

    # -- what a gradient keeps -------------------------------------------------------------------------
    def keep_forward(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keeps what the gradient takes."""
        outputs = output if isinstance(output, tuple) else (output,)
        if len(outputs) > 1:
            ctx.mark_non_differentiable(*outputs[self.op.carried(*inputs) :])
        values: Sequence[object] = (*inputs, *outputs)
        if self.op.facts is not None:
            values = (*values, self.op.facts(*inputs))
        if self.op.spares is not None:
            named = dict(zip((*self.names, *self.results, "facts"), values, strict=False))
            values = [*(named | dict.fromkeys(self.op.spares(named))).values()]
        self.forward_keeps.keep(ctx, values)

    # -- gradient --------------------------------------------------------------------------------------
    def follow_rule(self, ctx: Any, *upstream: torch.Tensor | None) -> tuple[object, ...]:
        """The gradients by the operator's own rule."""
        assert self.op.rule is not None
        values = self.forward_keeps.values_of(ctx)
        for dy in upstream:
            if dy is not None:
                break
        else:
            lists = {name: [None] * len(value) for name, value in values.items() if isinstance(value, tuple)}
            return tuple(lists.get(name) for name in self.names)
        if self.forward_keeps.lacks_needs:
            self.add_needs(ctx, values)
        gradients = dict.fromkeys(self.names)
        gradients.update(zip(self.graded, self.op.rule(values, *upstream), strict=True))
        return tuple(gradients.values())

    def gradient(self, ctx: Any, dy: torch.Tensor | None, *_: object) -> tuple[object, ...]:
        """The gradients by the backward operator."""
        if dy is None:
            return (None,) * len(self.names)
        values = self.forward_keeps.values_of(ctx)
        if self.forward_keeps.lacks_needs:
            self.add_needs(ctx, values)
        grads = self.backward(dy, *map(values.__getitem__, self.saved))
        gradients = dict.fromkeys(self.names)
        wanted = self.graded if self.always else self.wanted(values)
        for name, grad in zip(self.graded, grads if len(self.graded) > 1 else (grads,), strict=True):
            if name in wanted:
                gradients[name] = grad
        return tuple(gradients.values())

    def add_needs(self, ctx: Any, values: dict[str, Any]) -> None:
        """Adds which gradients are asked for."""
        needs = [*map(ctx.needs_input_grad.__getitem__, self.graded_at)]
        values["needs"] = needs
        values.update(zip(self.need_names, needs, strict=True))

    def wanted(self, values: Mapping[str, Any]) -> list[str]:
        """The names of the inputs whose gradients the backward computes: those that are there and asked for.

        A backward that is not told which gradients are asked for computes all of them.
        """
        names, needs = [], values.get("needs")
        for number, (name, need) in enumerate(zip(self.graded, self.need_names, strict=True)):
            there = values.get(need, True) and values.get(name, name) is not None
            if there and (needs is None or needs[number]):
                names.append(name)
        return names

    # -- backward operator -----------------------------------------------------------------------------
    def define_backward(self) -> Any:
        """The backward operator, whose own gradient is taken through plain torch."""
        kinds = self.op.kinds()
        words = ", ".join(f"{kinds[name]} {name}" for name in self.saved)
        outputs = f"({', '.join(['Tensor'] * len(self.graded))})" if len(self.graded) > 1 else "Tensor"
        schema = f"{self.op.backward_name}(Tensor {self.op.upstream}, {words}) -> {outputs}"
        backward = define(schema, self.run_backward, self.fake_backward)
        differentiate(backward, lambda ctx, inputs, output: self.backward_keeps.keep(ctx, inputs), self.second_gradient)
        return backward

    def run_backward(self, dy: torch.Tensor, *saved: Any) -> object:
        """One gradient for each of the operator's `gradients`, an empty tensor where none is wanted."""
        if forward_ad._current_level >= 0:
            refuse_tangents(self.op.backward_name)
        values = dict(zip(self.saved, saved, strict=True))
        inputs, results, options = self.op.call_of(values)
        try:
            grads = self.launch_backward(dy, inputs, results, **options)
        except KernelLimitError as error:
            note_limit(self.backward_title, error)
            grads = self.reference_backward(dy, inputs, results, **options)
        gradient_of = dict(zip(self.op.input_names, grads, strict=False))
        wanted = self.graded if self.always else self.wanted(values)
        answers = []
        for name in self.graded:
            if name not in wanted:
                answers.append(nothing(saved[0]))
                continue
            grad = gradient_of[name]
            if grad is None:
                raise RuntimeError(
                    f"{self.backward_title}: the launcher returned no gradient for an input that has one"
                )
            answers.append(self.place(grad, values[name]) if name in self.laid else grad.contiguous())
        return tuple(answers) if len(answers) > 1 else answers[0]

    def fake_backward(self, dy: object, *saved: Any) -> object:
        """As `run_backward`, of tensors that hold nothing."""
        values = dict(zip(self.saved, saved, strict=True))
        wanted = self.wanted(values)

        def empty_gradient(name: str) -> torch.Tensor:
            if name not in wanted:
                return nothing(saved[0])
            x = values.get(name, saved[0])
            return self.op.room(x) if self.op.room is not None and name in self.laid else like(x)

        grads = tuple(map(empty_gradient, self.graded))
        return grads if len(grads) > 1 else grads[0]

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
        asked = [(name, u) for name, u in zip(self.graded, upstream, strict=True) if u is not None]
        if not asked:
            return None, {}
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            leaves = {name: leaf(x) for name, x in values.items() if isinstance(x, torch.Tensor)}
            ddy = leaf(dy)
            inputs, results, options = self.op.call_of({**values, **leaves})
            grads = self.reference_backward(ddy, inputs, results, **options)
            gradient_of = dict(zip(self.op.input_names, grads, strict=False))
            answers = torch.autograd.grad(
                [gradient_of[name] for name, _ in asked],
                [ddy, *leaves.values()],
                [u for _, u in asked],
                create_graph=again,
                allow_unused=True,
            )
        return answers[0], dict(zip(leaves, answers[1:], strict=True))
