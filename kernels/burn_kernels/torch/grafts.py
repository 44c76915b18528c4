"""Forwards that `patch` puts before classes of other libraries, and the probes that say where they fit.

A class is recognised by what it computes: an object of it with small parts of known values runs on a CPU beside the
forward that would replace its own, and only where both agree is it replaced.  The object itself is not run, so no hook
fires, and models on the meta device can be patched.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from burn_kernels.torch import functional as F
from burn_kernels.torch.modules import activation_of, unwatched

__all__ = [
    "FORMER",
    "causal_lm_loss",
    "gate_of",
    "graft",
    "kind_of",
    "probe_attention",
    "probe_gpt2_mlp",
    "probe_mlp",
    "probe_norm",
]

FORMER = "_burn_kernels_class"
"""The attribute in which a patched module keeps the class that it had."""


# -- grafting ------------------------------------------------------------------------------------------
class Grafted:
    """Base of forwards that are put before a class that this library does not know by import.

    The class is made when it is needed (`graft`), so pickles name its two parents and make it again.
    """

    def __reduce_ex__(self, protocol: object) -> Any:
        kind = type(self).__bases__[0]
        return _regraft, (kind, getattr(self, FORMER)), self.__dict__


def _regraft(kind: type, former: type) -> object:
    grafted: Any = graft(kind, former)
    return grafted.__new__(grafted)


_GRAFTS: dict[tuple[type, type], type] = {}


def graft(kind: type, former: type) -> type:
    """The class with the forward of `kind` and all else of `former`; the same each time."""
    if (kind, former) not in _GRAFTS:
        names: dict[str, object] = {"__module__": __name__, "__doc__": kind.__doc__}
        if kind is RotaryAttention:
            names["forward"] = _turn(former)
        _GRAFTS[kind, former] = type(f"Fused{former.__name__}", (kind, former), names)
    return _GRAFTS[kind, former]


def _object(module: nn.Module, **parts: object) -> Any:
    """An object of the module's class and with its attributes, but with other parameters or modules, on no hook."""
    copied = object.__new__(type(module))
    copied.__dict__ = {**vars(module), **parts}
    return copied


def _differs(output: Any, expected: Any, dtype: torch.dtype) -> bool:
    if not isinstance(output, torch.Tensor) or output.shape != expected.shape or output.dtype != expected.dtype:
        return True
    # of half types two roundings of 8 bits, of float32 the sums of some hundred numbers in another order
    rtol = 1e-5 if dtype == torch.float32 else 2e-2
    return not torch.allclose(output.float(), expected.float(), rtol=rtol, atol=rtol)


def _compare(own: Callable[[], object], ours: Callable[[], object], dtype: torch.dtype) -> str:
    """Why two forwards are not the same; empty where they are."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            output = own()
            torch.manual_seed(0)
            expected = ours()
    except Exception as error:  # whatever its forward raises: it is not what it was taken for
        first = (str(error).splitlines() or [""])[0]
        return f"not as known: a probe of its forward raises {type(error).__name__}: {first}"
    return "not as known: a probe of its forward gives other numbers" if _differs(output, expected, dtype) else ""


# -- RMS norm ------------------------------------------------------------------------------------------
class RMSNorm(Grafted):
    """weight * (x / rms(x)).to(the type of x), as the RMS norms of transformers."""

    weight: torch.Tensor

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The norm over the last axis."""
        x, w, eps = hidden_states, self.weight, eps_of(self)
        assert eps is not None
        if w.dtype == x.dtype:
            return F.rms_norm(x, w.shape, w, eps)
        return w * F.rms_norm(x, w.shape, None, eps)


def eps_of(norm: object) -> float | None:
    """The number that a norm adds under its root, by its usual names."""
    numbers = [getattr(norm, name) for name in ("variance_epsilon", "eps", "epsilon") if hasattr(norm, name)]
    return numbers[0] if numbers and isinstance(numbers[0], float) else None


def probe_norm(module: nn.Module) -> str:
    """Why this is no RMS norm with one weight; empty where it is."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.dim() != 1 or eps_of(module) is None:
        return "not as known: expected a weight with one axis and variance_epsilon or eps"
    if len(module._parameters) != 1 or module._modules or module._buffers:
        return "not as known: it holds more than a weight"
    size, draw = weight.shape[0], torch.Generator().manual_seed(0)
    # rows of which eps is nothing, a part, and nearly all; weights that are far from what they begin with
    x = torch.randn(3, size, generator=draw) * torch.tensor([[3.0], [1e-3], [1e-6]])
    scale = torch.rand(size, generator=draw) + 0.5
    for kinds in ((torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)):
        inputs, of = x.to(kinds[0]), nn.Parameter(scale.to(kinds[1]), requires_grad=False)
        twin = _object(module, _parameters={"weight": of})
        own, ours = (
            functools.partial(type(module).forward, twin, inputs),
            functools.partial(RMSNorm.forward, twin, inputs),
        )
        if why := _compare(own, ours, kinds[0]):
            return why
    return ""


# -- gated MLP -----------------------------------------------------------------------------------------
class MLP(Grafted):
    """down(act(gate(x)) * up(x)), as the gated MLPs of transformers."""

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module
    act_fn: nn.Module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The gated unit between its products."""
        gated = gate_of(self.act_fn)
        if gated is None:  # exchanged since: as the class did before
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]  # modules
        return self.down_proj(gated(self.gate_proj(x), self.up_proj(x)))  # type: ignore[no-any-return]  # modules


PARTS = ("act_fn", "down_proj", "gate_proj", "up_proj")


def kind_of(act: nn.Module) -> str | None:
    """The name that this library has for an activation of torch or transformers."""
    kinds = {
        "transformers.activations.SiLUActivation": "silu",
        "transformers.activations.GELUActivation": "gelu",
        "transformers.activations.PytorchGELUTanh": "gelu_tanh",
        "transformers.activations.GELUTanh": "gelu_tanh",
        "transformers.activations.NewGELUActivation": "gelu_tanh",
    }
    former = getattr(act, FORMER, type(act))
    return activation_of(act) or kinds.get(f"{former.__module__}.{former.__qualname__}")


def gate_of(act: nn.Module) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None:
    """The gated unit with this activation."""
    kind = kind_of(act)
    tanh = functools.partial(F.geglu, approximate="tanh")
    gated: dict[str, Callable[..., torch.Tensor]] = {"silu": F.swiglu, "gelu": F.geglu, "gelu_tanh": tanh}
    return None if kind is None else gated.get(kind, F.reglu)


def probe_mlp(module: nn.Module) -> str:
    """Why this is no gated MLP of three products and a known activation; empty where it is."""
    if tuple(sorted(module._modules)) != PARTS or module._parameters:
        return f"not as known: expected {', '.join(PARTS)} and nothing else"
    if getattr(getattr(module, "config", None), "pretraining_tp", 1) > 1:
        return "pretraining_tp above 1 cuts its products"
    act = module.act_fn
    assert isinstance(act, nn.Module)
    if gate_of(act) is None:
        return f"no gated unit with {type(act).__name__}"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = {"gate_proj": (4, 6), "up_proj": (4, 6), "down_proj": (6, 4)}
        parts: dict[str, nn.Module] = {name: nn.Linear(*size, device="cpu") for name, size in sizes.items()}
        x = torch.randn(3, 4)
    hooks = {name: type(held)() for name, held in vars(act).items() if name.startswith("_") and "_hooks" in name}
    twin = _object(module, _modules={**parts, "act_fn": _object(act, **hooks)})
    own, ours = functools.partial(type(module).forward, twin, x), functools.partial(MLP.forward, twin, x)
    return _compare(own, ours, torch.float32)


# -- MLP of GPT-2 --------------------------------------------------------------------------------------
GPT2_PARTS = ("act", "c_fc", "c_proj", "dropout")


class GPT2MLP(Grafted):
    """dropout(c_proj(act(c_fc(x)))), as the MLP of transformers' GPT-2, whose weights are (in, out)."""

    c_fc: nn.Module
    c_proj: nn.Module
    act: nn.Module
    dropout: nn.Module

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The first layer with its activation as one, unless somebody watches the two."""
        x, first = hidden_states, self.c_fc
        kind = kind_of(self.act) if unwatched(first, self.act) and not _fault_of_conv1d(first) else None
        if kind is None:
            y = self.act(first(x))
        else:
            assert isinstance(first.weight, torch.Tensor)
            assert isinstance(first.bias, torch.Tensor)
            y = F.linear(x, first.weight.T, first.bias, activation=kind)
        return self.dropout(self.c_proj(y))  # type: ignore[no-any-return]  # modules


def _fault_of_conv1d(layer: nn.Module) -> str:
    kind = type(layer)
    known = f"{kind.__module__}.{kind.__qualname__}" == "transformers.pytorch_utils.Conv1D"
    return "" if known and not layer._modules else f"not as known: c_fc is a {kind.__name__}"


def probe_gpt2_mlp(module: nn.Module) -> str:
    """Why this is no MLP of two layers with (in, out) weights and a known activation; empty where it is."""
    if tuple(sorted(module._modules)) != GPT2_PARTS or module._parameters:
        return f"not as known: expected {', '.join(GPT2_PARTS)} and nothing else"
    first, act = module.c_fc, module.act
    assert isinstance(first, nn.Module)
    assert isinstance(act, nn.Module)
    if fault := _fault_of_conv1d(first):
        return fault
    if kind_of(act) is None:
        return f"no layer with {type(act).__name__}"
    draw = torch.Generator().manual_seed(0)
    weights = {"weight": nn.Parameter(torch.randn(4, 6, generator=draw)), "bias": nn.Parameter(torch.randn(6))}
    unhooked = {name: type(held)() for name, held in vars(act).items() if name.startswith("_") and "_hooks" in name}
    layer = {"_parameters": weights, "nf": 6, **{name: type(vars(first)[name])() for name in unhooked}}
    parts = {"c_fc": _object(first, **layer), "act": _object(act, **unhooked)}
    parts |= {"c_proj": nn.Linear(6, 4, device="cpu"), "dropout": nn.Dropout(0.0)}
    twin, x = _object(module, _modules=parts), torch.randn(3, 4, generator=draw)
    own, ours = functools.partial(type(module).forward, twin, x), functools.partial(GPT2MLP.forward, twin, x)
    return _compare(own, ours, torch.float32)


# -- rotary attention ----------------------------------------------------------------------------------
class RotaryAttention(Grafted):
    """The attention of a model of transformers with queries and keys rotated by one kernel; its forward is its own."""


NAME = "apply_rotary_pos_emb"


def _rotation(own: Callable[..., object]) -> Callable[..., object]:
    """Makes the substitute of `own`, transformers' rotation of q and k (batch, heads, seq, d_head)."""

    def apply_rotary_pos_emb(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *args: object, **options: object
    ) -> object:
        # one angle a pair, not the halves of a table alike; no rounding beyond that of the result
        if args or options or q.dim() != 4 or cos.dim() != 3 or cos.shape[-1] != q.shape[-1]:
            return own(q, k, cos, sin, *args, **options)
        pairs = cos.shape[-1] // 2
        across = q.transpose(1, 2), k.transpose(1, 2)
        y, z = F.rope(*across, cos[..., :pairs], sin[..., :pairs])
        assert z is not None
        wider = torch.promote_types(q.dtype, cos.dtype)
        return y.transpose(1, 2).to(wider), z.transpose(1, 2).to(wider)

    return apply_rotary_pos_emb


def _home(module: ModuleType) -> ModuleType:
    """A second namespace for the code of a module, in which the rotation is ours; the module stays as it is."""
    name = f"{__name__}.{module.__name__.replace('.', '_')}"
    if name not in sys.modules:
        copied = ModuleType(name, f"The names of {module.__name__}, with the fused rotation.")
        own = ("__name__", "__doc__", "__loader__", "__spec__", "__package__")
        vars(copied).update({key: value for key, value in vars(module).items() if key not in own})
        setattr(copied, NAME, _rotation(getattr(module, NAME)))
        sys.modules[name] = copied  # torch.compile looks names up by that of the module
    return sys.modules[name]


def _moved(function: object, home: ModuleType) -> object:
    """The same code with the names of `home`, through decorators that say what they wrap; None where that fails."""
    inner = getattr(function, "__wrapped__", None)
    if not isinstance(function, FunctionType):
        return None
    if inner is None:
        copied = FunctionType(
            function.__code__, vars(home), function.__name__, function.__defaults__, function.__closure__
        )
    else:
        moved, cells = _moved(inner, home), function.__closure__ or ()
        holds = [cell.cell_contents is inner for cell in cells]
        if moved is None or not any(holds):
            return None
        closure = tuple(CellType(moved) if its else cell for cell, its in zip(cells, holds, strict=True))
        copied = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, closure
        )
    copied.__kwdefaults__, copied.__qualname__ = function.__kwdefaults__, function.__qualname__
    copied.__dict__.update(vars(function))
    return copied


def _turn(former: type) -> object:
    forward: Any = former.forward  # type: ignore[attr-defined]  # a module's class
    return _moved(forward, _home(sys.modules[inspect.unwrap(forward).__module__]))


def rotates(kind: type) -> bool:
    """Tells if the forward of this class calls a rotation of queries and keys by its name."""
    forward = inspect.unwrap(getattr(kind, "forward", lambda: None))
    code = getattr(forward, "__code__", None)
    return code is not None and NAME in code.co_names and NAME in getattr(forward, "__globals__", {})


def probe_attention(module: nn.Module, model: nn.Module) -> str:
    """Why the rotation in this attention is not one of halves by tables of doubled angles; empty where it is."""
    forward = inspect.unwrap(type(module).forward)
    tables = [part for part in model.modules() if type(part).__name__.endswith("RotaryEmbedding")]
    if not tables:
        return "no rotary embedding in the model, so what its tables hold is not known"
    for part in {type(part): part for part in tables}.values():
        if why := _probe_tables(part):
            return why
    own, draw = forward.__globals__[NAME], torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, 5, 8, generator=draw) for heads in (3, 1))
    angle = torch.randn(1, 5, 4, generator=draw).repeat(1, 1, 2)
    inputs = (q, k, angle.cos(), angle.sin())

    def both(rotate: Callable[..., Any]) -> torch.Tensor:
        return torch.cat(rotate(*inputs), 1)

    if why := _compare(functools.partial(both, own), functools.partial(both, _rotation(own)), q.dtype):
        return why.replace("its forward", "its rotation")
    source = sys.modules.get(forward.__module__)
    if source is None or getattr(source, NAME, None) is not own:
        return "not as known: its rotation is none of its module's"
    return "" if _turn(type(module)) is not None else "its forward is wrapped by what hides it"


def _probe_tables(part: nn.Module) -> str:
    if any(buffer.is_meta for buffer in part.buffers()):
        return "on the meta device: its rotary embedding holds no angles yet"
    twin = copy.deepcopy(part).to("cpu")
    try:
        with torch.no_grad():
            cos, sin = type(part).forward(twin, torch.zeros(1, 3, 2), torch.arange(3)[None])
    except Exception as error:  # another kind of rotary embedding
        return f"not as known: a probe of {type(part).__name__} raises {type(error).__name__}"
    half = cos.shape[-1] // 2
    alike = cos.dim() == 3 and all(torch.equal(table[..., :half], table[..., half:]) for table in (cos, sin))
    return "" if alike else f"the halves of the tables of {type(part).__name__} differ"


# -- other parts of language models --------------------------------------------------------------------
class TanhGELU(Grafted):
    """GELU by tanh in one operator of torch, where transformers' takes eight."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The activation."""
        return nn.functional.gelu(input, approximate="tanh")


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
