"""`patch`: exchanges the modules of a model for fused ones, in place, and says of each what was done and why.

A module is exchanged by its class: `module.__class__` becomes a subclass of what it was, with another `forward`.  The
object stays the same, and with it parameters, ties, buffers, hooks, names, training mode and all who hold it.  The
class that it had is noted on the module, so copies and pickles of a patched model can be unpatched too.

Modules are recognised by their exact class, those of `transformers` by qualified name and by what they hold.  A
subclass may compute something else and is left alone.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from burn_kernels.errors import KernelArgumentError, explain
from burn_kernels.torch import functional as F
from burn_kernels.torch import modules

__all__ = ["PatchEntry", "PatchReport", "patch", "unpatch"]

_FORMER = "_burn_kernels_class"
_FORMER_LOSS = "_burn_kernels_loss"
_ABSENT = "absent"


# -- the report ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class PatchEntry:
    """What became of one module."""

    path: str
    """Its name in the model; "" is the model itself."""
    kind: str
    """Its class as it was."""
    replaced_by: str | None
    """What computes now, or None where it was left alone."""
    why: str
    """Why it was left alone; empty where it was replaced just now."""


@dataclass(frozen=True)
class PatchReport:
    """What became of every module of a model."""

    entries: tuple[PatchEntry, ...]

    @property
    def replaced(self) -> list[PatchEntry]:
        """Those that this call replaced."""
        return [entry for entry in self.entries if entry.replaced_by is not None and not entry.why]

    @property
    def kept(self) -> list[PatchEntry]:
        """Those that this call left as they were, each with its reason."""
        return [entry for entry in self.entries if entry.replaced_by is None or entry.why]

    def __str__(self) -> str:
        lines = [f"replaced {len(self.replaced)} of {len(self.entries)} modules"]
        lines += [f"  {entry.path or '(the model)'}: {entry.kind} -> {entry.replaced_by}" for entry in self.replaced]
        counts = Counter((entry.kind, entry.why) for entry in self.kept)
        lines += [f"  kept {count} {kind}: {why}" for (kind, why), count in counts.items()]
        return "\n".join(lines)


# -- what replaces modules of other libraries ----------------------------------------------------------
class _Grafted:
    """Base of forwards that are put before a class that this library does not know by import.

    The class is made when it is needed (`_graft`), so pickles name its two parents and make it again.
    """

    def __reduce_ex__(self, protocol: Any) -> Any:
        graft = type(self).__bases__[0]
        return _regraft, (graft, getattr(self, _FORMER)), self.__dict__


def _regraft(graft: type, former: type) -> Any:
    made: Any = _graft(graft, former)
    return made.__new__(made)


_GRAFTS: dict[tuple[type, type], type] = {}


def _graft(graft: type, former: type) -> type:
    if (graft, former) not in _GRAFTS:
        names = {"__module__": __name__, "__doc__": graft.__doc__}
        _GRAFTS[graft, former] = type(f"Fused{former.__name__}", (graft, former), names)
    return _GRAFTS[graft, former]


class _TransformersRMSNorm(_Grafted):
    """weight * (x / rms(x)).to(the type of x), as the RMS norms of transformers."""

    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        x, w = hidden_states, self.weight
        if w.dtype == x.dtype:
            return F.rms_norm(x, w.shape, w, self.variance_epsilon)
        return w * F.rms_norm(x, w.shape, None, self.variance_epsilon)


class _TransformersMLP(_Grafted):
    """down(act(gate(x)) * up(x)), as the gated MLPs of transformers."""

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module
    act_fn: nn.Module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gated = _gate(self.act_fn)
        if gated is None:  # exchanged since: as the class did before
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]  # modules
        return self.down_proj(gated(self.gate_proj(x), self.up_proj(x)))  # type: ignore[no-any-return]  # modules


class _TanhGELU(_Grafted):
    """GELU by tanh in one operator of torch, where transformers' takes eight."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(input, approximate="tanh")


def _gate(act: nn.Module) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None:
    """The gated unit with this activation."""
    tanh = functools.partial(F.geglu, approximate="tanh")
    kinds: dict[str, Callable[..., torch.Tensor]] = {
        "torch.nn.modules.activation.SiLU": F.swiglu,
        "transformers.activations.SiLUActivation": F.swiglu,
        "transformers.activations.GELUActivation": F.geglu,
        "transformers.activations.PytorchGELUTanh": tanh,
        "transformers.activations.GELUTanh": tanh,
        "transformers.activations.NewGELUActivation": tanh,
        "torch.nn.modules.activation.ReLU": F.reglu,
    }
    if isinstance(act, nn.GELU) and type(act) is nn.GELU:
        return tanh if act.approximate == "tanh" else F.geglu
    return kinds.get(_name(getattr(act, _FORMER, type(act))))


def causal_lm_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    vocab_size: int,
    num_items_in_batch: Any = None,
    ignore_index: int = -100,
    shift_labels: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor:
    """transformers' ForCausalLMLoss: the cross entropy of the next token, without a float32 copy of the logits."""
    if shift_labels is None:
        shift_labels = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    flat, targets = logits.reshape(-1, vocab_size), shift_labels.reshape(-1).to(logits.device)
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss: torch.Tensor
    loss, _ = torch.ops.burn_kernels.cross_entropy(flat, targets, None, reduction, 0.0, ignore_index, 0.0)
    if num_items_in_batch is None:
        return loss
    count = num_items_in_batch
    return loss / (count.to(loss.device) if isinstance(count, torch.Tensor) else count)


# -- rules ---------------------------------------------------------------------------------------------
# A rule gives the class that replaces a module's, or the reason why none does.
Rule = Callable[[nn.Module, bool], "type | str"]


def _always(by: type) -> Rule:
    return lambda module, dropout: by


def _softmax(by: type) -> Rule:
    return lambda module, dropout: by if module.dim is not None else "dim None lets torch guess an axis"


def _dropout(module: nn.Module, dropout: bool) -> type | str:
    if module.inplace:
        return "in place: no operation of this library writes to its input"
    return modules.Dropout if dropout else "its masks would be others than torch's; patch(model, dropout=True) does it"


def _transformers_norm(module: nn.Module, dropout: bool) -> type | str:
    weight, eps = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
    if not isinstance(weight, nn.Parameter) or weight.dim() != 1 or not isinstance(eps, float):
        return "not as known: expected a weight with one axis and variance_epsilon"
    if len(module._parameters) != 1 or module._modules:
        return "not as known: it holds more than a weight"
    return _graft(_TransformersRMSNorm, type(module))


def _transformers_mlp(module: nn.Module, dropout: bool) -> type | str:
    parts = {"gate_proj", "up_proj", "down_proj", "act_fn"}
    if set(module._modules) != parts or module._parameters:
        return f"not as known: expected {', '.join(sorted(parts))} and nothing else"
    if getattr(getattr(module, "config", None), "pretraining_tp", 1) > 1:
        return "pretraining_tp above 1 cuts its products"
    act = module.act_fn
    assert isinstance(act, nn.Module)
    if _gate(act) is None:
        return f"no gated unit with {type(act).__name__}"
    return _graft(_TransformersMLP, type(module))


_TORCH = "torch.nn.modules."
RULES: dict[str, Rule] = {
    f"{_TORCH}normalization.LayerNorm": _always(modules.LayerNorm),
    f"{_TORCH}normalization.RMSNorm": _always(modules.RMSNorm),
    f"{_TORCH}activation.Softmax": _softmax(modules.Softmax),
    f"{_TORCH}activation.LogSoftmax": _softmax(modules.LogSoftmax),
    f"{_TORCH}loss.CrossEntropyLoss": _always(modules.CrossEntropyLoss),
    f"{_TORCH}dropout.Dropout": _dropout,
    "transformers.activations.NewGELUActivation": lambda module, dropout: _graft(_TanhGELU, type(module)),
}
for _family, _prefix in (*(("llama", "Llama"), ("mistral", "Mistral"), ("qwen2", "Qwen2"), ("qwen3", "Qwen3")),):
    _home = f"transformers.models.{_family}.modeling_{_family}.{_prefix}"
    RULES[f"{_home}RMSNorm"] = _transformers_norm
    RULES[f"{_home}MLP"] = _transformers_mlp
for _kind in (modules.BatchNorm1d, modules.BatchNorm2d, modules.BatchNorm3d):
    RULES[f"{_TORCH}batchnorm.{_kind.__name__}"] = _always(_kind)

_REASONS = {
    f"{_TORCH}activation.MultiheadAttention": "calls torch's attention, which has flash attention and cuDNN",
    f"{_TORCH}linear.Linear": "a matrix product, which cuBLAS computes either way",
    f"{_TORCH}sparse.Embedding": "a gather, which has no fused form here",
}
_LONE = "an activation alone: only gated units are fused"


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _decide(module: nn.Module, dropout: bool) -> type | str:
    """The class that is to replace the module's, or why none is."""
    kind = type(module)
    if isinstance(module, torch.jit.ScriptModule):
        return "scripted: its forward is no longer Python"
    if kind.__module__.startswith("burn_kernels.torch"):
        return "is of this library"
    if nn.utils.parametrize.is_parametrized(module):
        return "parametrized: its class is made for it, and its weights are computed"
    if "forward" in vars(module):
        return "its forward was set on the object"
    if rule := RULES.get(_name(kind)):
        return rule(module, dropout)
    for base in kind.__mro__[1:]:
        if _name(base) in RULES:
            return f"a subclass of {base.__name__}, which may compute something else"
    if reason := _REASONS.get(_name(kind)):
        return reason
    if kind.__module__ == f"{_TORCH}activation" or kind.__module__ == "transformers.activations":
        return _LONE
    return "holds other modules; its own forward is kept" if module._modules else "no fused form of this class"


# -- patch and unpatch ---------------------------------------------------------------------------------
def patch(model: nn.Module, *, dropout: bool = False) -> PatchReport:
    """Exchanges what it can in `model`, in place, and says for every module what, and for each other one why not.

    LayerNorm, RMSNorm, batch norms, Softmax, LogSoftmax, CrossEntropyLoss of torch, with `dropout` Dropout too; of
    transformers the RMS norms and gated MLPs of Llama, Mistral and Qwen, GPT-2's GELU, and the loss of causal language
    models.  A second call finds what the first has replaced, and changes nothing.  Not to be called while it runs.
    """
    entries = []
    for path, module in _modules(model):
        former = vars(module).get(_FORMER)
        if former is not None:
            entries.append(PatchEntry(path, former.__name__, type(module).__name__, "replaced before"))
        else:
            kind = type(module)
            decision = _decide(module, dropout)
            if isinstance(decision, str):
                entries.append(PatchEntry(path, kind.__name__, None, decision))
            else:
                module.__class__ = decision
                setattr(module, _FORMER, kind)
                entries.append(PatchEntry(path, kind.__name__, decision.__name__, ""))
        entries += _patch_loss(path, module)
    return PatchReport(tuple(entries))


def unpatch(model: nn.Module) -> list[str]:
    """Gives every module that `patch` changed its class back, and returns their names."""
    restored = []
    for path, module in _modules(model):
        former = vars(module).pop(_FORMER, None)
        if former is not None:
            module.__class__ = former
        loss = vars(module).pop(_FORMER_LOSS, None)
        if loss is not None:
            vars(module).pop("_loss_function")
            if loss != _ABSENT:
                vars(module)["_loss_function"] = loss
        if former is not None or loss is not None:
            restored.append(path)
    return restored


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if not isinstance(model, nn.Module):
        raise KernelArgumentError(
            explain(
                "patch: what is given is no module",
                given=type(model).__name__,
                expected="a torch.nn.Module",
                mend="pass the model itself",
            )
        )
    yield from model.named_modules()


def _patch_loss(path: str, module: nn.Module) -> list[PatchEntry]:
    """The loss function of a causal language model of transformers, which is an attribute of the model."""
    if not isinstance(getattr(type(module), "loss_function", None), property):
        return []
    kind = f"{type(module).__name__}.loss_function"
    if _FORMER_LOSS in vars(module):
        return [PatchEntry(path, kind, "causal_lm_loss", "replaced before")]
    function = module.loss_function
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    if name != "transformers.loss.loss_utils.ForCausalLMLoss":
        return [PatchEntry(path, kind, None, f"{name} is not the loss of a causal language model")]
    setattr(module, _FORMER_LOSS, vars(module).get("_loss_function", _ABSENT))
    vars(module)["_loss_function"] = causal_lm_loss
    return [PatchEntry(path, kind, "causal_lm_loss", "")]
