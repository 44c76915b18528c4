"""`patch` and `unpatch`: what is replaced, what is not and why, and that all else of a model stays."""

from __future__ import annotations

import copy
import pickle
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import burn_kernels.torch as bk
from burn_kernels import KernelArgumentError
from burn_kernels.torch.grafts import causal_lm_loss


class Block(nn.Module):
    """A block as people write them."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.norm, self.rms, self.linear = nn.LayerNorm(size), nn.RMSNorm(size), nn.Linear(size, size)
        self.softmax, self.drop, self.act = nn.Softmax(-1), nn.Dropout(0.5), nn.GELU()
        self.tied = self.norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.linear(self.norm(x)))
        return self.tied(self.softmax(self.rms(self.drop(y)))) + x  # type: ignore[no-any-return]  # modules


class OddNorm(nn.LayerNorm):
    """A subclass with a forward of its own."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(input)


def entries(report: bk.PatchReport) -> dict[str, tuple[str | None, str]]:
    return {entry.path: (entry.replaced_by, entry.why) for entry in report.entries}


def test_what_is_replaced_and_what_is_not() -> None:
    model = Block().eval()
    x = torch.randn(3, 8)
    before = model(x)
    replaced = entries(bk.patch(model))
    assert replaced == {
        "": (None, "holds other modules; its own forward is kept"),
        "norm": ("LayerNorm", ""),
        "rms": ("RMSNorm", ""),
        "linear": (None, "a matrix product, which cuBLAS computes either way"),
        "softmax": ("Softmax", ""),
        "drop": (None, "its masks would be others than torch's; patch(model, dropout=True) does it"),
        "act": (None, "an activation alone: torch's own kernel moves as few bytes"),
    }
    assert type(model.norm) is bk.LayerNorm
    assert model.tied is model.norm
    torch.testing.assert_close(model(x), before)


def test_a_second_call_changes_nothing() -> None:
    model = Block()
    first = bk.patch(model)
    classes = [type(m) for m in model.modules()]
    second = bk.patch(model)
    assert len(first.replaced) == 3
    assert second.replaced == []
    assert entries(second)["norm"] == ("LayerNorm", "replaced before")
    assert classes == [type(m) for m in model.modules()]


def test_unpatch_restores_the_same_objects() -> None:
    model = Block()
    objects, classes = list(model.modules()), [type(m) for m in model.modules()]
    names, state = [sorted(vars(m)) for m in objects], copy.deepcopy(model.state_dict())
    bk.patch(model, dropout=True)
    assert type(model.drop) is bk.Dropout
    assert bk.unpatch(model) == ["norm", "rms", "softmax", "drop"]
    assert all(one is other for one, other in zip(model.modules(), objects, strict=True))
    assert [type(m) for m in model.modules()] == classes
    assert [sorted(vars(m)) for m in objects] == names
    torch.testing.assert_close(model.state_dict(), state, rtol=0.0, atol=0.0)
    assert bk.unpatch(model) == []


def test_hooks_modes_ties_and_frozen_parameters_stay() -> None:
    model = Block().eval()
    model.rms.weight = nn.Parameter(model.norm.weight.detach(), requires_grad=False)
    calls: list[str] = []
    model.norm.register_forward_hook(lambda *_: calls.append("forward"))
    model.rms.register_full_backward_hook(lambda *_: calls.append("backward"))
    parameters = dict(model.named_parameters())
    bk.patch(model)
    model(torch.randn(2, 8)).sum().backward()
    assert sorted(calls) == ["backward", "forward", "forward"]
    assert not model.rms.training
    assert model.rms.weight.grad is None
    assert all(p is parameters[name] for name, p in model.named_parameters())


def test_copies_and_pickles_stay_patched_and_can_be_unpatched() -> None:
    model = Block().eval()
    x = torch.randn(2, 8)
    expected = model(x)
    bk.patch(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other.norm) is bk.LayerNorm
        torch.testing.assert_close(other(x), expected)
        assert bk.unpatch(other) == ["norm", "rms", "softmax"]
        assert type(other.norm) is nn.LayerNorm
    assert type(model.norm) is bk.LayerNorm


def test_states_interchange() -> None:
    plain, patched = Block(), Block()
    bk.patch(patched)
    assert list(plain.state_dict()) == list(patched.state_dict())
    patched.load_state_dict(plain.state_dict())
    plain.load_state_dict(patched.state_dict())


def test_what_is_refused_says_why() -> None:
    model = nn.ModuleDict(
        {
            "odd": OddNorm(4),
            "weighted": nn.CrossEntropyLoss(torch.ones(3)),
            "guess": nn.Softmax(),
            "inplace": nn.Dropout(inplace=True),
            "own": nn.LayerNorm(4),
            "parametrized": nn.LayerNorm(4),
            "ours": bk.LayerNorm(4),
            "convolution": nn.Conv2d(33, 1, 1),
            "transposed": nn.ConvTranspose2d(1, 1, 1),
        }
    )
    own: Any = model["own"]
    own.forward = lambda x: x
    parametrize.register_parametrization(model["parametrized"], "weight", nn.Softplus())
    report = entries(bk.patch(model, dropout=True))
    why = {path: reason for path, (by, reason) in report.items() if by is None}
    assert why["odd"] == "a subclass of LayerNorm, which may compute something else"
    assert report["weighted"] == ("CrossEntropyLoss", "")
    assert why["guess"] == "dim None lets torch guess an axis"
    assert why["inplace"] == "in place: no operation of this library writes to its input"
    assert why["own"] == "its forward was set on the object"
    assert why["parametrized"] == "parametrized: its class is made for it, and its weights are computed"
    assert why["ours"] == "is of this library"
    assert why["convolution"] == "more than 32 channels a group, which cuDNN computes either way"
    assert why["transposed"] == "no fused form of this class"


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is (deprecated|not supported):DeprecationWarning")
def test_a_scripted_module_is_left_alone() -> None:
    report = entries(bk.patch(nn.Sequential(torch.jit.script(nn.LayerNorm(4)))))
    assert report["0"] == (None, "scripted: its forward is no longer Python")


def test_wrappers_are_seen_through() -> None:
    model = nn.DataParallel(nn.Sequential(nn.LayerNorm(4)))
    assert entries(bk.patch(model))["module.0"] == ("LayerNorm", "")
    assert model(torch.randn(2, 4)).shape == (2, 4)


def test_a_compiled_model_is_compiled_anew() -> None:
    torch._dynamo.reset()
    model = Block().eval()
    compiled: Any = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = torch.randn(2, 8)
    expected = compiled(x)
    bk.patch(model)
    torch.testing.assert_close(compiled(x), expected)
    assert isinstance(model.norm, bk.LayerNorm)


def test_the_report_reads() -> None:
    lines = str(bk.patch(Block())).splitlines()
    assert lines[0] == "replaced 3 of 7 modules"
    assert "  norm: LayerNorm -> LayerNorm" in lines
    assert "  kept 1 Linear: a matrix product, which cuBLAS computes either way" in lines


def test_what_is_no_module_is_refused() -> None:
    wrong: Any = torch.ones(2)
    with pytest.raises(KernelArgumentError, match=r"(?s)no module.*Tensor.*torch.nn.Module.*the model itself"):
        bk.patch(wrong)


# -- a linear layer and the activation behind it ------------------------------------------------------------
def test_a_sequential_computes_a_linear_and_its_activation_as_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 9, bias=False), nn.ReLU(inplace=True), nn.Tanh())
    x = torch.randn(4, 6, requires_grad=True)
    expected = [model(x), *torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])]
    assert entries(bk.patch(model))[""] == ("Sequential", "")
    with torch.profiler.profile() as profile:
        results = [model(x), *torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])]
    torch.testing.assert_close(results, expected)
    assert sum(event.name == "burn_kernels::linear" for event in profile.events()) == 4  # two layers, two calls
    assert bk.unpatch(model) == [""]
    assert type(model) is nn.Sequential


def test_a_pair_that_somebody_watches_is_left_apart() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.SiLU())
    bk.patch(model)
    seen = []
    handle = model[0].register_forward_hook(lambda module, given, out: seen.append(out))
    x = torch.randn(2, 3)
    torch.testing.assert_close(model(x), nn.functional.silu(seen[0]))
    handle.remove()
    own: Any = model[1]
    own.forward = lambda x: x - 1.0
    torch.testing.assert_close(model(x), seen[0] - 1.0)


def test_sequentials_without_a_pair_are_left_alone() -> None:
    class Wider(nn.Linear):
        """May compute something else."""

    for parts in (
        (nn.ReLU(), nn.Linear(3, 4)),
        (Wider(3, 4), nn.ReLU()),
        (nn.Linear(3, 4), nn.GELU("tanh"), nn.Tanh()),
    ):
        report = entries(bk.patch(nn.Sequential(*parts)))
        fused = len(parts) == 3
        assert report[""] == (
            ("Sequential", "") if fused else (None, "holds other modules, and no Linear right before an activation")
        )


def test_the_layer_has_the_state_of_torchs() -> None:
    layer, plain = bk.Linear(3, 4, activation="silu"), nn.Linear(3, 4)
    layer.load_state_dict(plain.state_dict())
    x, residual = torch.randn(2, 5, 3), torch.randn(2, 5, 4)
    torch.testing.assert_close(layer(x, residual), nn.functional.silu(plain(x)) + residual)
    assert "activation='silu'" in repr(layer)


# -- models of transformers, by look-alikes --------------------------------------------------------------
class LlamaRMSNorm(nn.Module):
    """As transformers' own."""

    def __init__(self, size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.rand(size)), eps

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        x = hidden_states.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * x.to(hidden_states.dtype)


class LlamaMLP(nn.Module):
    """As transformers' own."""

    def __init__(self, size: int, act: nn.Module) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (nn.Linear(size, size, bias=False) for _ in range(3))
        self.act_fn = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]  # modules


class Conv1D(nn.Module):
    """As transformers' own: a linear layer whose weight is (in, out)."""

    def __init__(self, out: int, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(size, out)), nn.Parameter(torch.randn(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class GPT2MLP(nn.Module):
    """As transformers' own."""

    def __init__(self, size: int, act: nn.Module) -> None:
        super().__init__()
        self.c_fc, self.c_proj, self.act, self.dropout = (
            Conv1D(4 * size, size),
            Conv1D(size, 4 * size),
            act,
            nn.Dropout(0.0),
        )

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.c_proj(self.act(self.c_fc(hidden_states))))  # type: ignore[no-any-return]  # modules


class NewGELUActivation(nn.Module):
    """As transformers' own."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 0.5 * input * (1.0 + torch.tanh(0.7978845608028654 * (input + 0.044715 * input**3)))


def ForCausalLMLoss(  # noqa: N802  # as it is named there
    logits: torch.Tensor, labels: torch.Tensor, vocab_size: int, num_items_in_batch: Any = None, **_: Any
) -> torch.Tensor:
    shifted = nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].flatten()
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = nn.functional.cross_entropy(logits.float().view(-1, vocab_size), shifted, reduction=reduction)
    return loss if num_items_in_batch is None else loss / num_items_in_batch


class LlamaForCausalLM(nn.Module):
    """As transformers' own, in small."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.embed, self.norm, self.mlp = nn.Embedding(11, 8), LlamaRMSNorm(8), LlamaMLP(8, act)
        self.extra, self.head = NewGELUActivation(), nn.Linear(8, 11)

    @property
    def loss_function(self) -> Any:
        return getattr(self, "_loss_function", ForCausalLMLoss)

    def forward(self, ids: torch.Tensor, count: Any = None) -> torch.Tensor:
        logits = self.head(self.extra(self.mlp(self.norm(self.embed(ids)))))
        return self.loss_function(logits, ids, 11, num_items_in_batch=count)  # type: ignore[no-any-return]  # as there


HOMES = {
    "transformers.models.llama.modeling_llama": (LlamaRMSNorm, LlamaMLP),
    "transformers.models.gpt2.modeling_gpt2": (GPT2MLP,),
    "transformers.pytorch_utils": (Conv1D,),
    "transformers.activations": (NewGELUActivation,),
    "transformers.loss.loss_utils": (ForCausalLMLoss,),
}


@pytest.fixture
def look_alikes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes above under the names that they have in transformers."""
    for home in (
        "transformers",
        "transformers.models",
        "transformers.models.llama",
        "transformers.models.gpt2",
        "transformers.loss",
    ):
        monkeypatch.setitem(sys.modules, home, ModuleType(home))
    for home, members in HOMES.items():
        module = ModuleType(home)
        for member in members:
            monkeypatch.setattr(member, "__module__", home)
            setattr(module, member.__name__, member)
        monkeypatch.setitem(sys.modules, home, module)


@pytest.mark.usefixtures("look_alikes")
@pytest.mark.parametrize("act", [nn.SiLU(), nn.GELU(), nn.GELU("tanh"), NewGELUActivation(), nn.ReLU()], ids=str)
def test_a_llama_is_patched_whole(act: nn.Module) -> None:
    model = LlamaForCausalLM(act)
    ids = torch.randint(0, 11, (2, 6))
    expected = [model(ids), *torch.autograd.grad(model(ids), list(model.parameters()))]
    counted = model(ids, 5)
    report = bk.patch(model)
    replaced = {(entry.path, entry.replaced_by) for entry in report.replaced}
    assert {("norm", "FusedLlamaRMSNorm"), ("mlp", "FusedLlamaMLP"), ("", "causal_lm_loss")} <= replaced
    assert ("extra", "FusedNewGELUActivation") in replaced
    assert isinstance(model.mlp, LlamaMLP)  # whoever asks gets the answer of before
    results = [model(ids), *torch.autograd.grad(model(ids), list(model.parameters()))]
    torch.testing.assert_close(results, expected)
    torch.testing.assert_close(model(ids, torch.tensor(5)), counted)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(ids), expected[0])
        assert "norm" in bk.unpatch(other)
        assert type(other.norm) is LlamaRMSNorm
    assert set(bk.unpatch(model)) >= {"", "norm", "mlp", "extra"}
    assert type(model.mlp) is LlamaMLP
    assert "_loss_function" not in vars(model)


@pytest.mark.usefixtures("look_alikes")
def test_a_norm_of_another_type_than_its_input_rounds_where_transformers_does() -> None:
    plain = LlamaRMSNorm(8)
    patched = copy.deepcopy(plain)
    bk.patch(patched)
    x = torch.randn(3, 8).bfloat16()
    assert patched(x).dtype == plain(x).dtype == torch.float32
    torch.testing.assert_close(patched(x), plain(x), rtol=1e-2, atol=1e-2)


class ShiftedRMSNorm(LlamaRMSNorm):
    """Scales by 1 + weight, as Gemma's: by its parts it looks like Llama's."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden_states) + super().forward(hidden_states) / self.weight


class WideRMSNorm(LlamaRMSNorm):
    """Multiplies before it rounds: what comes of half inputs is of another type."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden_states.float())


class SwappedMLP(LlamaMLP):
    """The activation of the other product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))  # type: ignore[no-any-return]  # modules


def test_what_looks_alike_and_computes_something_else_is_found_by_its_probe() -> None:
    norms = [ShiftedRMSNorm(8), WideRMSNorm(8), LlamaRMSNorm(8)]
    odd: Any = LlamaRMSNorm(8)
    odd.variance_epsilon = 1  # no float
    act = nn.SiLU()
    model = nn.ModuleList([*norms, odd, SwappedMLP(8, act), LlamaMLP(8, act)])
    calls: list[str] = []
    for module in (*norms, act):
        module.register_forward_hook(lambda *_: calls.append("hook"))
    torch.manual_seed(3)
    state = torch.get_rng_state()
    report = entries(bk.patch(model))
    other = "not as known: a probe of its forward gives other numbers"
    assert report["0"] == (None, other)
    assert report["1"] == (None, other)
    assert report["2"] == ("FusedLlamaRMSNorm", "")
    assert report["3"] == (None, "not as known: expected a weight with one axis and variance_epsilon or eps")
    assert report["4"] == (None, other)
    assert report["5"] == ("FusedLlamaMLP", "")
    assert calls == []
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.usefixtures("look_alikes")
def test_look_alikes_that_hold_something_else_are_left_alone() -> None:
    class Odd(nn.Module):
        pass

    norm, mlp = LlamaRMSNorm(8), LlamaMLP(8, nn.Tanh())
    norm.extra = nn.Parameter(torch.ones(1))
    sliced = LlamaMLP(8, nn.SiLU())
    sliced.config = type("Config", (), {"pretraining_tp": 2})()
    more = LlamaMLP(8, nn.SiLU())
    more.other = Odd()
    report = entries(bk.patch(nn.ModuleList([norm, mlp, sliced, more])))
    assert report["0"] == (None, "not as known: it holds more than a weight")
    assert report["1"] == (None, "no gated unit with Tanh")
    assert report["2"] == (None, "pretraining_tp above 1 cuts its products")
    assert report["3"][1].startswith("not as known: expected act_fn, down_proj")


@pytest.mark.usefixtures("look_alikes")
@pytest.mark.parametrize("act", [NewGELUActivation(), nn.ReLU()], ids=str)
def test_the_mlp_of_gpt2_reads_its_weights_as_they_lie(act: nn.Module) -> None:
    torch.manual_seed(1)
    model = nn.ModuleList([GPT2MLP(5, act)])
    x = torch.randn(2, 3, 5, requires_grad=True)
    leaves = [x, *model.parameters()]
    expected = [model[0](x), *torch.autograd.grad(model[0](x).square().mean(), leaves)]
    assert entries(bk.patch(model))["0"] == ("FusedGPT2MLP", "")
    results = [model[0](x), *torch.autograd.grad(model[0](x).square().mean(), leaves)]
    torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-4)
    assert "0" in bk.unpatch(model)
    odd = GPT2MLP(5, nn.Tanh())
    other = GPT2MLP(5, nn.ReLU())
    other.c_fc = nn.Linear(5, 20)  # type: ignore[assignment]  # another layer on purpose
    report = entries(bk.patch(nn.ModuleList([odd, other])))
    assert report["0"] == (None, "no layer with Tanh")
    assert report["1"] == (None, "not as known: c_fc is a Linear")


def test_a_loss_function_of_another_kind_is_left_alone() -> None:
    model = LlamaForCausalLM(nn.SiLU())
    report = bk.patch(model)
    (entry,) = (entry for entry in report.entries if entry.kind.endswith("loss_function"))
    assert entry.replaced_by is None
    assert entry.why.endswith("ForCausalLMLoss is not the loss of a causal language model")


def test_the_loss_takes_shifted_labels() -> None:
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[1, 2, -100], [0, 4, 3]])
    loss = causal_lm_loss(logits, labels, 5, shift_labels=labels)
    torch.testing.assert_close(loss, nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))
