"""The linear layer as operators of PyTorch: `torch.ops.burn_kernels.linear` and `linear_backward`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from burn_kernels.launcher import Launcher
from burn_kernels.matmul.launch_backward import backward
from burn_kernels.matmul.references import keeps, twin
from burn_kernels.operators import Operator, like, nothing, second

__all__ = ["layer_operators"]


def _fake(
    x: torch.Tensor, w: torch.Tensor, b: object, residual: object, kind: str, gradients: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    shape, held = (*x.shape[:-1], w.shape[0]), gradients and keeps(kind, residual=residual is not None) == "z"
    return x.new_empty(shape), x.new_empty(shape) if held else nothing(x)


def _run_layer(
    run: Callable[..., torch.Tensor],
    run_kept: Callable[..., Any],
    *inputs: torch.Tensor | None,
    kind: str,
    gradients: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if not gradients:
        return run(*inputs, kind=kind), None
    y, kept = run_kept(*inputs, kind=kind)
    return y, kept if keeps(kind, residual=inputs[3] is not None) == "z" else None


def _name_spared(known: Mapping[str, Any]) -> set[str]:
    """The names of the results that the gradient does not read: y serves one kind of layer, z others."""
    keep = keeps(known["kind"], residual=known["residual"] is not None)
    return {"y", "kept"} - {"y" if keep == "out" else "kept" if keep == "z" and known["gradients"] else ""}


def _pass_back(saved: Mapping[str, Any], dy: torch.Tensor | None, _: object) -> tuple[torch.Tensor | None, ...]:
    """The gradients of a layer; z is computed again if the forward was told that none would be asked for."""
    x, w, b, kind, *others = map(saved.__getitem__, ("x", "w", "b", "kind", "y", "kept"))
    *needs, needs_residual = saved["needs"]
    kept = next((t for t in others if t is not None), None)
    if not saved["gradients"] and keeps(kind, residual=saved["facts"]) == "z":
        plain = torch.ops.burn_kernels.linear
        kept = plain(x.detach(), w.detach(), None if b is None else b.detach(), None, "none", False)[0]
    grads = [None] * 3
    if any(needs):
        grads = torch.ops.burn_kernels.linear_backward(dy, x, w, b, kept, kind, needs)
    grads = [grad if needed else None for grad, needed in zip(grads, needs, strict=True)]
    return *grads, dy if needs_residual else None


def _run_back(
    back: Callable[..., Any], *tensors: torch.Tensor | None, kind: str, needs: list[bool]
) -> tuple[torch.Tensor | None, ...]:
    dy, x, w, b, kept = tensors
    grads = back(dy, x, w, kept, kind=kind, bias=b is not None and needs[2], needs=(needs[0], needs[1]))
    return tuple([grad if needed else None for grad, needed in zip(grads, needs, strict=True)])


def _pass_back_twice(saved: Mapping[str, Any], *upstream: torch.Tensor | None) -> list[torch.Tensor | None]:
    inputs, kind = (saved["x"], saved["w"], saved["b"]), saved["kind"]
    asked = [u if needed else None for u, needed in zip(upstream, saved["needs"], strict=True)]
    return second(lambda x, w, b: twin(x, w, b, kind=kind), saved["dy"], inputs, asked)


def layer_operators(forward: Launcher[..., Any], forward_kept: Launcher[..., Any]) -> tuple[Operator, Operator]:
    """The operators of a layer and of its gradient, from the launchers of the forward."""
    layer = Operator(
        schema="linear(Tensor x, Tensor w, Tensor? b, Tensor? residual, str kind, bool gradients) -> (Tensor, Tensor)",
        inputs="x w b residual",
        forward=functools.partial(_run_layer, forward, forward_kept),
        reference=functools.partial(_run_layer, forward.reference, forward_kept.reference),
        fake=_fake,
        results="y kept",
        gradients="x w b residual",
        saved="x w b y kept kind gradients needs",
        spares=_name_spared,
        facts=lambda x, w, b, residual, *_: residual is not None,
        twin=lambda *inputs, kind, gradients: twin(*inputs, kind=kind),
        rule=_pass_back,
    )
    backward_of_layer = Operator(
        schema="linear_backward(Tensor dy, Tensor x, Tensor w, Tensor? b, Tensor? kept, str kind, bool[] needs)"
        " -> (Tensor, Tensor, Tensor)",
        inputs="dy x w b kept",
        forward=functools.partial(_run_back, backward),
        reference=functools.partial(_run_back, backward.reference),
        fake=lambda dy, x, w, b, kept, kind, needs: tuple(
            like(t) if t is not None and needed else nothing(x) for t, needed in zip((x, w, b), needs, strict=True)
        ),
        results="dx dw db",
        carries=3,
        gradients="dy x w b",
        saved="dy x w b kind needs",
        rule=_pass_back_twice,
    )
    return layer, backward_of_layer
