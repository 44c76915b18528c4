"""Optimizers of `torch.optim` whose step is one launch for all tensors of a kind: AdamW, Adam, SGD, Lion.

Constructors, parameter groups and `state_dict` are those of torch's classes, of which these are subclasses, so a state
goes from one to the other and back; torch has no Lion.  Two more options:

    clip_norm   gradients are scaled so that their norm over all parameters is at most this, as
                torch.nn.utils.clip_grad_norm_ does, but on the way through the step; `.grad` stays as it is
    copies      a tensor of another float type for some of the parameters, to which the step writes the new values

Parameters on a CPU take plain torch.  `foreach`, `fused` and `capturable` choose between torch's own forms and mean
nothing here.  A parameter without a gradient is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch._compile import _disable_dynamo

from burn_kernels.arguments import checked
from burn_kernels.errors import KernelArgumentError
from burn_kernels.torch.tables import get_total_norm

__all__ = ["SGD", "Adam", "AdamW", "Lion"]

_OPS = torch.ops.burn_kernels
Copies = Mapping[torch.Tensor, torch.Tensor]
Rows = list[tuple[torch.Tensor, ...]]


class _Fused:
    """The part that optimizers share; mixed in before torch's class."""

    param_groups: list[dict[str, Any]]
    clip_norm: float | None
    copies: dict[torch.Tensor, torch.Tensor]
    state: Any
    _step_supports_amp_scaling: bool
    _keep: Callable[[dict[str, Any], torch.Tensor], tuple[Any, ...]]
    """(group, parameter) -> the form of its step, which parameters of one launch share, and its states."""
    _launch: Callable[[dict[str, Any], Any, tuple[list[torch.Tensor], ...], torch.Tensor | None], None]
    """Does the step of (group, form, columns, clip); columns are parameters, gradients, states and copies."""

    def __init__(
        self, params: Any, *args: Any, clip_norm: float | None = None, copies: Copies | None = None, **options: Any
    ) -> None:
        super().__init__(params, *args, **options)  # type: ignore[call-arg]  # the constructor of torch's class
        self._set(clip_norm, copies)

    def __getstate__(self) -> dict[str, object]:
        """The state for copy.deepcopy and pickle; torch's own has no room for options of ours."""
        return cast(dict[str, Any], super().__getstate__()) | {"clip_norm": self.clip_norm, "copies": self.copies}

    def _set(self, clip_norm: float | None, copies: Copies | None) -> None:
        if clip_norm is not None and not clip_norm > 0.0:
            raise KernelArgumentError(
                f"{type(self).__name__}: the norm to clip at is outside its range",
                given=f"clip_norm {clip_norm}",
                expected="a number above 0, or None",
                mend="leave it out to clip nothing",
            )
        # with fused=True torch's classes promise GradScaler to divide by its scale themselves, which these steps do not
        self._step_supports_amp_scaling = False
        self.clip_norm, self.copies = clip_norm, dict(copies or {})
        ours = {p for group in self.param_groups for p in group["params"]}
        wrong = [p for p, copy in self.copies.items() if p not in ours or copy.shape != p.shape]
        if wrong:
            raise KernelArgumentError(
                f"{type(self).__name__}: copies that fit no parameter",
                given=", ".join(f"{tuple(self.copies[p].shape)} for {tuple(p.shape)}" for p in wrong),
                expected="for each key a parameter of this optimizer, a tensor of its shape",
                mend="copies={p: p.detach().bfloat16() for p in model.parameters()}",
            )
        self._refuse()

    def _refuse(self) -> None:
        """Raises for options of torch's classes that the kernels have no form for."""
        for number, group in enumerate(self.param_groups):
            refused = [name for name in ("amsgrad", "differentiable") if group.get(name)]
            if refused:
                raise KernelArgumentError(
                    f"{type(self).__name__}: an option without a fused form",
                    given=", ".join(f"{name} True" for name in refused) + f" in group {number}",
                    expected="amsgrad and differentiable False",
                    mend=f"take torch.optim.{type(self).__name__}",
                )

    def _begin(self, closure: Callable[[], object] | None) -> Any:
        self._refuse()
        if closure is None:
            return None
        if not callable(closure):
            raise KernelArgumentError(
                f"{type(self).__name__}.step: the closure is no function",
                given=f"closure={closure!r:.60}",
                expected="a function that computes the gradients and returns the loss, or None",
                mend="step() where the gradients are there already",
            )
        with torch.enable_grad():
            return closure()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; returns what `closure` gives."""
        return self._step(closure)

    def _step(self, closure: Callable[[], object] | None) -> Any:
        loss = self._begin(closure)
        clips = self._clips()
        for group in self.param_groups:
            rows: dict[Any, Rows] = {}
            for p in group["params"]:
                grad = _gradient(p)
                if grad is not None:
                    form, *states = self._keep(group, p)
                    rows.setdefault(form, []).append((p, grad, *states))
            for form, alike in rows.items():
                for columns in self._columns(alike):
                    device = columns[0][0].device
                    clip = clips.get(device)
                    if group.get("maximize"):
                        clip = torch.full((), -1.0, device=device) if clip is None else -clip
                    self._launch(group, form, columns, clip)
        return loss

    def _clips(self) -> dict[torch.device, torch.Tensor]:
        """For each device the number to multiply gradients by; computed there, nothing waits."""
        if self.clip_norm is None:
            return {}
        grads: dict[torch.device, list[torch.Tensor]] = {}
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    grads.setdefault(p.device, []).append(p.grad)
        if not grads:
            return {}
        if len(grads) == 1:
            (device,) = grads
            return {device: _OPS.clip_factor(grads[device], self.clip_norm, 2.0)[1].float()}
        home = next(iter(grads))
        parts = [get_total_norm(tensors).float().to(home) for tensors in grads.values()]
        # as torch.nn.utils.clip_grad_norm_, which keeps the norm this far from 0
        clip = (self.clip_norm / (torch.linalg.vector_norm(torch.stack(parts)) + 1e-6)).clamp(max=1.0)
        return {device: clip.to(device) for device in grads}

    def _columns(self, rows: Rows) -> list[tuple[list[torch.Tensor], ...]]:
        """Rows (parameter, gradient, states) as columns of flat views, and the copies: one set for each kind of row."""
        kinds: dict[Any, Rows] = {}
        for row in rows:
            copy = self.copies.get(row[0])
            whole = row if copy is None else (*row, copy)
            kinds.setdefault(tuple((x.device, x.dtype) for x in whole), []).append(_flat(whole))
        width = len(rows[0])
        sets = [tuple(map(list, zip(*kind, strict=True))) for kind in kinds.values()]
        return [columns if len(columns) > width else (*columns, []) for columns in sets]


def _flat(row: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """All of a row in the order in which the parameter lies in memory; what is written stays a view."""
    p, grad, *others = row
    if p.is_contiguous():
        strides = None
    elif _is_dense(p):  # channels last, say
        strides = p.stride()
    else:
        raise KernelArgumentError(
            "optimizer: a parameter with gaps between its elements",
            given=f"shape {tuple(p.shape)}, strides {p.stride()}",
            expected="a parameter that fills its memory",
            mend="make it anew: torch.nn.Parameter(p.detach().clone())",
        )
    if grad.stride() != p.stride():
        grad = torch.empty_like(p, dtype=grad.dtype).copy_(grad)
    views = [p, grad]
    for x in others:
        if x.stride() != p.stride():
            raise KernelArgumentError(
                "optimizer: a state or copy that lies otherwise than its parameter",
                given=f"strides {x.stride()} beside {p.stride()}",
                expected="the strides of the parameter",
                mend="make it with torch.empty_like(parameter)",
            )
        views.append(x)
    if strides is None:
        return tuple(x.detach() for x in views)
    return tuple(x.detach().as_strided((x.numel(),), (1,), x.storage_offset()) for x in views)


def _is_dense(x: torch.Tensor) -> bool:
    """Tells if the elements fill a stretch of memory, in whatever order of the axes."""
    size = 1
    for stride, length in sorted(zip(x.stride(), x.shape, strict=True)):
        if length != 1 and stride != size:
            return False
        size *= length
    return True


def _gradient(p: torch.Tensor) -> torch.Tensor | None:
    grad = p.grad
    if grad is not None and (grad.is_sparse or p.is_complex()):
        raise KernelArgumentError(
            "optimizer: a gradient without a fused form",
            given=f"{'sparse' if grad.is_sparse else 'complex'}, shape {tuple(p.shape)}",
            expected="dense gradients of real parameters",
            mend="put such parameters into an optimizer of torch.optim",
        )
    return grad


def _number(value: Any) -> float:
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        raise KernelArgumentError(
            "optimizer: a number that lies on a device, and reading it would wait for that",
            given=f"lr or beta {value.device}",
            expected="a Python number, or a tensor on the CPU",
            mend="group['lr'] = float(group['lr']) once",
        )
    return float(value)


class _AdamStep(_Fused):
    decoupled = True
    # traced, the number of the step would be a constant; torch's own steps are left out alike
    _step = _disable_dynamo(_Fused._step)

    def _keep(self, group: dict[str, Any], p: torch.Tensor) -> tuple[Any, ...]:
        state = self.state[p]
        if state and state["step"].device.type != "cpu":  # from a state of torch's that counted on the device
            state["step"] = state["step"].cpu()
        if not state:
            state["step"] = torch.tensor(0.0, dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        state["step"] += 1
        return int(state["step"]), state["exp_avg"], state["exp_avg_sq"]

    def _launch(
        self, group: dict[str, Any], form: int, columns: tuple[list[torch.Tensor], ...], clip: torch.Tensor | None
    ) -> None:
        decay, coupled = float(group["weight_decay"]), not group.get("decoupled_weight_decay", self.decoupled)
        beta1, beta2 = (_number(beta) for beta in group["betas"])
        lr, eps = _number(group["lr"]), float(group["eps"])
        _OPS.adamw_(*columns, clip, lr, form, beta1, beta2, eps, decay, coupled)


@checked
class AdamW(_AdamStep, torch.optim.AdamW):
    """torch.optim.AdamW in one launch for all tensors of a kind; `clip_norm` and `copies` as above.

    amsgrad and differentiable are refused: they have no fused form.
    """


@checked
class Adam(_AdamStep, torch.optim.Adam):
    """torch.optim.Adam in one launch for all tensors of a kind; `clip_norm` and `copies` as above.

    amsgrad and differentiable are refused: they have no fused form.
    """

    decoupled = False


@checked
class SGD(_Fused, torch.optim.SGD):
    """torch.optim.SGD with momentum, dampening, decay, Nesterov, in one launch for all tensors of a kind.

    differentiable is refused: it has no fused form.
    """

    def _keep(self, group: dict[str, Any], p: torch.Tensor) -> tuple[Any, ...]:
        if not float(group["momentum"]):
            return (False,)
        velocity = self.state[p].get("momentum_buffer")
        if velocity is None:
            self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        return velocity is None, self.state[p]["momentum_buffer"]

    def _launch(
        self, group: dict[str, Any], form: bool, columns: tuple[list[torch.Tensor], ...], clip: torch.Tensor | None
    ) -> None:
        params, grads, *velocities, copies = columns
        # the first step of a momentum takes the gradient whole
        share = 1.0 if form else 1.0 - float(group["dampening"])
        lr, momentum, decay = _number(group["lr"]), float(group["momentum"]), float(group["weight_decay"])
        velocity = velocities[0] if velocities else []
        _OPS.sgd_(params, grads, velocity, copies, clip, lr, momentum, share, decay, bool(group["nesterov"]))


@checked
class Lion(_Fused, torch.optim.Optimizer):
    """Lion in one launch for all tensors of a kind: the sign of a mean of gradients, and a decoupled decay.

        u = sign(beta1 * m + (1 - beta1) * g)      p = p * (1 - lr * weight_decay) - lr * u
        m = beta2 * m + (1 - beta2) * g

    The state of a parameter is `exp_avg`, in its type.  As each step moves every weight by lr, an lr of a third to a
    tenth of AdamW's is usual, and a decay as much larger.
    Source: Chen et al. 2023, algorithm 2, https://arxiv.org/abs/2302.06675.
    """

    def __init__(
        self,
        params: Any,
        lr: float | torch.Tensor = 1e-4,
        betas: tuple[float | torch.Tensor, float | torch.Tensor] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        clip_norm: float | None = None,
        copies: Copies | None = None,
    ) -> None:
        inside = all(0.0 <= _number(beta) < 1.0 for beta in betas)
        if not (_number(lr) >= 0.0 and inside and weight_decay >= 0.0):
            raise KernelArgumentError(
                "Lion: an option is outside its range",
                given=f"lr {lr}, betas {betas}, weight_decay {weight_decay}",
                expected="lr and weight_decay from 0; betas from 0 up to, not including, 1",
                mend="1e-4, (0.9, 0.99) and 0.0 are the defaults",
            )
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach}
        torch.optim.Optimizer.__init__(self, params, defaults)
        self._set(clip_norm, copies)

    def _keep(self, group: dict[str, Any], p: torch.Tensor) -> tuple[Any, ...]:
        if not self.state[p]:
            self.state[p]["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        return None, self.state[p]["exp_avg"]

    def _launch(
        self, group: dict[str, Any], form: None, columns: tuple[list[torch.Tensor], ...], clip: torch.Tensor | None
    ) -> None:
        beta1, beta2 = (_number(beta) for beta in group["betas"])
        _OPS.lion_(*columns, clip, _number(group["lr"]), beta1, beta2, float(group["weight_decay"]))
