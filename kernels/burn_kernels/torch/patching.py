"""`patch`: exchanges the modules of a model for fused ones, in place, and says of each what was done and why.

A module is exchanged by its class: `module.__class__` becomes a subclass of what it was, with another `forward`.  The
object stays the same, and with it parameters, ties, buffers, hooks, names, training mode and all who hold it.  The
class that it had is noted on the module, so copies and pickles of a patched model can be unpatched too.

Modules of torch are recognised by their exact class: a subclass may compute something else and is left alone.  Those of
other libraries are recognised by what they compute, see `grafts`.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from burn_kernels.arguments import checked
from burn_kernels.convolution.references import FEW_CHANNELS
from burn_kernels.errors import KernelArgumentError
from burn_kernels.torch import grafts, modules
from burn_kernels.torch.grafts import FORMER

__all__ = ["PatchEntry", "PatchReport", "patch", "unpatch"]

_FORMER_LOSS = "_burn_kernels_loss"
_ABSENT = "absent"


# -- the report ----------------------------------------------------------------------------------------
@checked
@dataclass(frozen=True)
class PatchEntry:
    """The outcome for one module."""

    path: str
    """Its name in the model; "" is the model itself."""
    kind: str
    """Its class as it was."""
    replaced_by: str | None
    """The name of the new computation, or None if the module was left alone."""
    why: str
    """Why it was left alone; empty where it was replaced just now."""


@checked
@dataclass(frozen=True)
class PatchReport:
    """The outcomes for all modules of a model."""

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


# -- rules ---------------------------------------------------------------------------------------------
# A rule gives the class that replaces a module's, or the reason why none does.
@dataclass(frozen=True)
class _Asked:
    """The facts that a rule may read beside the module."""

    model: nn.Module
    dropout: bool


Rule = Callable[[Any, _Asked], "type | str"]


def _always(by: type) -> Rule:
    return lambda module, asked: by


def _softmax(by: type) -> Rule:
    return lambda module, asked: by if module.dim is not None else "dim None lets torch guess an axis"


def _dropout(module: Any, asked: _Asked) -> type | str:
    if module.inplace:
        return "in place: no operation of this library writes to its input"
    if not asked.dropout:
        return "its masks would be others than torch's; patch(model, dropout=True) does it"
    return modules.Dropout


def _convolution(module: nn.Module, asked: _Asked) -> type | str:
    assert isinstance(module, nn.Conv2d)
    sources, targets = (count // module.groups for count in (module.in_channels, module.out_channels))
    if max(sources, targets) > FEW_CHANNELS:
        return f"more than {FEW_CHANNELS} channels a group, which cuDNN computes either way"
    if module.padding_mode != "zeros" or module.padding == "same":
        return "padded with other numbers than 0, or by a word"
    return modules.Conv2d


def _instance_norm(by: type) -> Rule:
    return lambda module, asked: "keeps running statistics" if module.track_running_stats else by


def _embedding(module: Any, asked: _Asked) -> type | str:
    if module.max_norm is not None or module.sparse:
        return "max_norm and sparse gradients have no fused form"
    return modules.Embedding


def _sequential(module: Any, asked: _Asked) -> type | str:
    if any(modules.pair_of(one, other) for one, other in itertools.pairwise(module.children())):
        return modules.Sequential
    return "holds other modules, and no Linear right before an activation"


_TORCH = "torch.nn.modules."
RULES: dict[str, Rule] = {
    f"{_TORCH}normalization.LayerNorm": _always(modules.LayerNorm),
    f"{_TORCH}normalization.RMSNorm": _always(modules.RMSNorm),
    f"{_TORCH}activation.Softmax": _softmax(modules.Softmax),
    f"{_TORCH}activation.LogSoftmax": _softmax(modules.LogSoftmax),
    f"{_TORCH}loss.CrossEntropyLoss": _always(modules.CrossEntropyLoss),
    f"{_TORCH}dropout.Dropout": _dropout,
    f"{_TORCH}conv.Conv2d": _convolution,
    f"{_TORCH}normalization.GroupNorm": _always(modules.GroupNorm),
    f"{_TORCH}sparse.Embedding": _embedding,
    f"{_TORCH}container.Sequential": _sequential,
    "transformers.activations.NewGELUActivation": lambda module, asked: grafts.graft(grafts.TanhGELU, type(module)),
}
for _kind in (modules.BatchNorm1d, modules.BatchNorm2d, modules.BatchNorm3d):
    RULES[f"{_TORCH}batchnorm.{_kind.__name__}"] = _always(_kind)
for _norm in (modules.InstanceNorm1d, modules.InstanceNorm2d, modules.InstanceNorm3d):
    RULES[f"{_TORCH}instancenorm.{_norm.__name__}"] = _instance_norm(_norm)
_REASONS = {
    f"{_TORCH}activation.MultiheadAttention": "calls torch's attention, which has flash attention and cuDNN",
    f"{_TORCH}linear.Linear": "a matrix product, which cuBLAS computes either way",
}
_LONE = "an activation alone: torch's own kernel moves as few bytes"


def _by_behaviour(module: nn.Module, asked: _Asked) -> type | str | None:
    """The same for classes of other libraries, which are known by what they compute; None for no such kind."""
    kind = type(module)
    if kind.__name__.endswith("RMSNorm"):
        return grafts.probe_norm(module) or grafts.graft(grafts.RMSNorm, kind)
    if kind.__name__.endswith("MLP") and set(grafts.PARTS) <= set(module._modules):
        return grafts.probe_mlp(module) or grafts.graft(grafts.MLP, kind)
    if kind.__name__.endswith("MLP") and set(grafts.GPT2_PARTS) <= set(module._modules):
        return grafts.probe_gpt2_mlp(module) or grafts.graft(grafts.GPT2MLP, kind)
    if kind.__name__.endswith("Attention") and grafts.rotates(kind):
        return grafts.probe_attention(module, asked.model) or grafts.graft(grafts.RotaryAttention, kind)
    return None


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _decide(module: nn.Module, asked: _Asked) -> type | str:
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
        return rule(module, asked)
    for base in kind.__mro__[1:]:
        if _name(base) in RULES:
            return f"a subclass of {base.__name__}, which may compute something else"
    if reason := _REASONS.get(_name(kind)):
        return reason
    if kind.__module__ == f"{_TORCH}activation" or kind.__module__ == "transformers.activations":
        return _LONE
    if (entry := _by_behaviour(module, asked)) is not None:
        return entry
    return "holds other modules; its own forward is kept" if module._modules else "no fused form of this class"


# -- patch and unpatch ---------------------------------------------------------------------------------
@functools.partial(checked, but=("model",))
def patch(model: nn.Module, *, dropout: bool = False) -> PatchReport:
    """Exchanges what it can in `model`, in place, and says for every module what, and for each other one why not.

    LayerNorm, RMSNorm, batch, group and instance norms, Conv2d of few channels, Softmax, LogSoftmax, CrossEntropyLoss,
    Embedding of torch, with `dropout` Dropout too, a Sequential in which an activation follows a Linear; RMS norms and
    gated MLPs of other libraries that compute what Llama's do, MLPs that compute what GPT-2's do; of transformers the
    rotation in attentions, GPT-2's GELU, and the loss of causal language models.  A second call finds what the first
    has replaced, and changes nothing.  Not to be called while the model runs.
    """
    entries, asked = [], _Asked(model, dropout)
    for path, module in _modules(model):
        former = vars(module).get(FORMER)
        if former is not None:
            entries.append(PatchEntry(path, former.__name__, type(module).__name__, "replaced before"))
        else:
            kind = type(module)
            decision = _decide(module, asked)
            if isinstance(decision, str):
                entries.append(PatchEntry(path, kind.__name__, None, decision))
            else:
                module.__class__ = decision
                setattr(module, FORMER, kind)
                entries.append(PatchEntry(path, kind.__name__, decision.__name__, ""))
        entries += _patch_loss(path, module)
    return PatchReport(tuple(entries))


@functools.partial(checked, but=("model",))
def unpatch(model: nn.Module) -> list[str]:
    """Gives every module that `patch` changed its class back, and returns their names."""
    restored = []
    for path, module in _modules(model):
        former = vars(module).pop(FORMER, None)
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
            "patch: what is given is no module",
            given=type(model).__name__,
            expected="a torch.nn.Module",
            mend="pass the model itself",
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
    vars(module)["_loss_function"] = grafts.causal_lm_loss
    return [PatchEntry(path, kind, "causal_lm_loss", "")]
