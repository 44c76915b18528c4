"""The operators: gradients of both orders, fake tensors, compile, export, autocast, and what they promise."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

import burn_kernels.torch as bk
from burn_kernels import (
    KernelArgumentError,
    KernelDeviceError,
    KernelError,
    KernelLimitError,
    linear_cross_entropy,
    softmax,
)
from burn_kernels.reduce import KINDS
from burn_kernels.rope import turns
from burn_kernels.torch import defining, registering
from burn_kernels.torch import functional as F
from burn_kernels.torch.optim import _is_dense as _dense

OPS = torch.ops.burn_kernels
TARGETS = torch.tensor([1, 2, -100, 3])
SEED = torch.tensor([3, -4])


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()


def turned(x: torch.Tensor, axis: int = 1) -> torch.Tensor:
    """A leaf whose axes before and at `axis` lie the other way round."""
    return x.detach().transpose(axis - 1, axis).requires_grad_()


X, W, B = drawn(4, 7), drawn(7), drawn(7)
WEIGHT = torch.linspace(0.5, 2.0, 7, dtype=torch.float64)
TABLES = tuple(drawn(5, 3).detach().requires_grad_(False) for _ in range(2))
PLACES = torch.tensor([[0, 3, 1], [4, 4, 2]])
INDICES = torch.tensor([[0, 2, 2], [4, 2, 0]])
IMAGES, MOMENTS = drawn(2, 3, 2, 4), (drawn(3).detach(), drawn(3).detach().square())
HEADS, SEEN = (drawn(1, 2, 4, 3), drawn(1, 1, 4, 3), drawn(1, 1, 4, 3)), torch.ones(4, 4).tril(1).bool()
PACKED = (drawn(5, 2, 3), drawn(5, 1, 3), drawn(5, 1, 3), torch.tensor([0, 2, 5]), torch.tensor([0, 3, 5]))
NOTHING = (False, "none", 2, 0.0, None)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "softmax": (OPS.softmax, (X,)),
    "log_softmax": (OPS.log_softmax, (X,)),
    "layer_norm": (OPS.layer_norm, (X, W, B, 1e-5)),
    "layer_norm plain": (OPS.layer_norm, (X, None, None, 1e-5)),
    "rms_norm": (OPS.rms_norm, (X, W, 1e-5)),
    "batch_norm": (OPS.batch_norm, (drawn(5, 7), W, B, None, None, 0.1, 1e-5, "silu")),
    "batch_norm plain": (OPS.batch_norm, (IMAGES, None, None, *MOMENTS, 0.1, 1e-5, "none")),
    "group_norm": (OPS.group_norm, (drawn(2, 4, 2, 3), drawn(4), drawn(4), 2, 1e-5, "silu")),
    "instance_norm": (OPS.group_norm, (drawn(1, 2, 5), None, drawn(2), 2, 1e-3, "none")),
    "convolution": (
        OPS.convolution,
        (drawn(1, 1, 3, 2), drawn(2, 1, 2, 2), drawn(2), [1, 1], [1, 0], [1, 1], 1, *NOTHING),
    ),
    "convolution with a pool": (
        OPS.convolution,
        (drawn(1, 2, 2, 3), drawn(2, 1, 1, 2), None, [1, 1], [0, 0], [1, 1], 2, False, "mean", 2, 0.3, SEED),
    ),
    "batch_norm_eval": (OPS.batch_norm_eval, (IMAGES, drawn(3), drawn(3), *MOMENTS, 1e-5, "silu")),
    "cross_entropy mean": (OPS.cross_entropy, (X, TARGETS, None, "mean", 0.1, -100, 0.0)),
    "cross_entropy none": (OPS.cross_entropy, (X, TARGETS, None, "none", 0.0, -100, 0.0)),
    "cross_entropy weighted": (OPS.cross_entropy, (X, TARGETS, WEIGHT, "mean", 0.1, -100, 0.2)),
    "linear_cross_entropy": (
        OPS.linear_cross_entropy,
        (X, drawn(9, 7), drawn(9), TARGETS, None, "mean", 0.1, -100, 0.1, True, ""),
    ),
    "linear_cross_entropy none": (
        OPS.linear_cross_entropy,
        (X, drawn(9, 7), None, TARGETS, torch.linspace(0.5, 2.0, 9).double(), "none", 0.1, -100, 0.0, False, ""),
    ),
    "linear": (OPS.linear, (X, drawn(9, 7), None, None, "none", True)),
    "linear relu": (OPS.linear, (X, drawn(9, 7), drawn(9), None, "relu", True)),
    "linear gelu": (OPS.linear, (X, drawn(7, 9).detach().T.requires_grad_(), drawn(9), drawn(4, 9), "gelu", True)),
    "linear silu": (OPS.linear, (X, drawn(9, 7), drawn(9), None, "silu", False)),
    **{f"glu {kind}": (OPS.glu, (X, drawn(4, 7), kind)) for kind in ("silu", "gelu", "gelu_tanh")},
    "dropout": (OPS.dropout, (X, 0.3, SEED)),
    "attention": (OPS.attention, (*HEADS, None, None, None, None, True, "top_left", None, None, 0.0, True)),
    "attention with all": (
        OPS.attention,
        (*HEADS, SEEN, drawn(2, 4, 4), SEED, 0.4, True, "bottom_right", 3, 2.0, 0.3, True),
    ),
    "attention_packed": (
        OPS.attention_packed,
        (*PACKED, 3, 3, None, None, True, "top_left", None, 2.0, 0.0),
    ),
    **{f"activation {kind}": (OPS.activation, (X, kind)) for kind in ("silu", "gelu", "gelu_tanh")},
    "activation across": (OPS.activation, (turned(drawn(3, 5)), "silu")),
    "rope": (OPS.rope, (drawn(2, 3, 2, 6), drawn(2, 3, 1, 6), *TABLES, None, 1, False, False)),
    "rope interleaved": (
        OPS.rope,
        (turned(drawn(2, 2, 3, 6), 2), turned(drawn(2, 1, 3, 6), 2), *TABLES, PLACES, 0, True, True),
    ),
    "rope of queries": (OPS.rope, (drawn(2, 3, 2, 7), None, *TABLES, None, 0, False, False)),
    "rope_computed": (OPS.rope_computed, (drawn(2, 3, 2, 6), drawn(2, 3, 1, 6), turns(6), PLACES, 0, False, False)),
    "residual_layer_norm": (OPS.residual_layer_norm, (X, drawn(4, 7), W, B, 1e-5, 0.0, None)),
    "residual_layer_norm dropped": (OPS.residual_layer_norm, (X, drawn(4, 7), W, None, 1e-5, 0.3, SEED)),
    "residual_rms_norm": (OPS.residual_rms_norm, (X, drawn(4, 7), None, 1e-5, 0.3, SEED)),
    "residual_rms_norm weighted": (OPS.residual_rms_norm, (X, drawn(4, 7), W, 1e-5, 0.0, None)),
    "embedding": (OPS.embedding, (INDICES, drawn(5, 3), -1, False)),
    "embedding scaled": (OPS.embedding, (INDICES, drawn(5, 3), 2, True)),
    "sum": (OPS.sum, (X, [0], False)),
    "sum of all": (OPS.sum, (X, None, False)),
    "mean": (OPS.mean, (X, [0, 1], True)),
    "var": (OPS.var, (X, [-1], True, 1.0)),
    "var of all": (OPS.var, (X, None, False, 0.0)),
    "logsumexp": (OPS.logsumexp, (X, [0], False)),
    "amax": (OPS.amax, (X, [1], True)),
    "amin": (OPS.amin, (X, None, False)),
}
PAIRS = {name for name in CASES if name.startswith(("rope", "residual"))} - {"rope of queries"}
"""Operators with two outputs that carry gradients."""
FLAT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "argmax": (OPS.argmax, (X.detach(), 1, False)),
    "argmin": (OPS.argmin, (X.detach(), None, True)),
    "clip_factor": (OPS.clip_factor, ([X.detach(), drawn(3).detach()], 0.5, 2.0)),
}
"""Operators without a gradient, or of a list."""


def outputs(name: str) -> Callable[..., Any]:
    """The outputs of a case that carry gradients."""
    op, _ = CASES[name]

    def run(*args: Any) -> Any:
        output = op(*args)
        return output[:2] if name in PAIRS else output[0] if isinstance(output, tuple) else output

    return run


# -- gradients -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_first_and_second_order(name: str) -> None:
    _, args = CASES[name]
    assert name == "embedding scaled" or gradcheck(outputs(name), args)  # its gradient is none, by its definition
    assert gradgradcheck(outputs(name), args, fast_mode=True)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "logsumexp", "glu silu", "residual_rms_norm weighted"])
def test_second_derivatives_where_the_upstream_gradient_comes_from_the_result(name: str) -> None:
    _, args = CASES[name]
    here = [a for a in args if isinstance(a, torch.Tensor)]

    def first(*leaves: torch.Tensor) -> torch.Tensor:
        tensors = iter(leaves)
        y = outputs(name)(*(next(tensors) if isinstance(a, torch.Tensor) else a for a in args))
        ys = y if isinstance(y, tuple) else (y,)
        loss = torch.stack([(y**3).sum() for y in ys]).sum()
        return torch.autograd.grad(loss, leaves[0], create_graph=True)[0]

    assert gradcheck(first, here, fast_mode=True)


def test_the_gradient_of_an_embedding_scaled_by_frequency_is_that_of_torch() -> None:
    weight = drawn(5, 3)
    ours, theirs = (m.embedding(INDICES, weight, 2, scale_grad_by_freq=True) for m in (F, nn.functional))
    dy = torch.randn(ours.shape, dtype=torch.float64)
    pair = [torch.autograd.grad(y, weight, dy)[0] for y in (ours, theirs)]
    torch.testing.assert_close(pair[0], pair[1])


@pytest.mark.parametrize("name", [name for name in CASES if name in PAIRS])
@pytest.mark.parametrize("which", [0, 1])
def test_gradients_where_one_output_alone_is_used(name: str, which: int) -> None:
    _, args = CASES[name]
    assert gradcheck(lambda *args: outputs(name)(*args)[which], args, fast_mode=True)
    assert gradgradcheck(lambda *args: outputs(name)(*args)[which], args, fast_mode=True)


@pytest.mark.parametrize("name", [*CASES, *FLAT])
def test_what_torch_asks_of_an_operator(name: str) -> None:
    op, args = (CASES | FLAT)[name]
    outcomes = torch.library.opcheck(op.default, args)
    assert set(outcomes.values()) == {"SUCCESS"}


@pytest.mark.parametrize("kept", [True, False], ids=["retain_graph", "once"])
def test_a_graph_that_is_kept_gives_the_same_gradients_twice(kept: bool) -> None:
    x, w = drawn(4, 7, dtype=torch.float32), drawn(9, 7, dtype=torch.float32)
    loss = 3.0 * F.linear_cross_entropy(x, w, TARGETS)
    one = torch.autograd.grad(loss, (x, w), retain_graph=kept)
    if kept:
        torch.testing.assert_close(torch.autograd.grad(loss, (x, w)), one, rtol=0.0, atol=0.0)
    else:
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            torch.autograd.grad(loss, (x, w))


def test_gradients_given_away_are_scaled_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = drawn(4, 7, dtype=torch.float32), drawn(9, 7, dtype=torch.float32)
    exact = torch.autograd.grad(5.0 * nn.functional.cross_entropy(x @ w.T, TARGETS), (x, w))
    for answer in (True, False):
        monkeypatch.setattr(linear_cross_entropy, "_keeps_graph", lambda answer=answer: answer)
        torch.testing.assert_close(torch.autograd.grad(5.0 * F.linear_cross_entropy(x, w, TARGETS), (x, w)), exact)


# -- compile and export --------------------------------------------------------------------------------
WEIGHTS = torch.linspace(0.5, 2.0, 8)


class Everything(nn.Module):
    """Each operation once, dropout twice."""

    def __init__(self) -> None:
        super().__init__()
        self.batch = bk.BatchNorm1d(8)
        self.norm, self.rms, self.head = bk.LayerNorm(8), bk.RMSNorm(8), bk.LinearCrossEntropyLoss(4, 9, bias=True)
        self.layer = bk.Linear(8, 8, activation="gelu")
        self.act, self.drop, self.loss = bk.SwiGLU(), bk.Dropout(0.5), bk.CrossEntropyLoss(WEIGHTS, z_loss=0.1)
        self.embed, self.residual, self.residual_rms = (
            bk.Embedding(9, 8),
            bk.ResidualLayerNorm(8, p=0.5),
            bk.ResidualRMSNorm(8),
        )

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        y = self.rms(self.norm(self.batch(x))) + self.drop(x) - self.drop(x)
        y = self.layer(y, x)
        y = F.softmax(y, -1) + F.log_softmax(y, 0) + F.geglu(y, y) + F.reglu(y, y)
        y = y + self.embed(targets.clamp(min=0)) + F.gelu(y) + F.silu(y) + F.relu(y)
        y, s = self.residual(y, x)
        z, _ = self.residual_rms(y, s)
        (q, k), angle = (t.view(2, 2, 1, 8) for t in (y, z)), torch.arange(3.0)[:, None] * torch.arange(1.0, 4.0)
        q, k = F.rope(q, k, angle.cos(), angle.sin())
        assert k is not None
        q, _ = F.rope_computed(q, None, turns(8), interleaved=True)
        total = F.mean(q) + F.sum(k, (0, 3)).sum() + F.var(y, 1).sum() + F.logsumexp(y, 0).sum() + F.amax(z, 1).sum()
        total = total + F.amin(y) + F.argmax(y, 0).sum() + F.argmin(y) + F.get_total_norm([y, z])
        loss: torch.Tensor = self.head(self.act(y), targets)
        return loss + self.loss(y, targets) + total  # type: ignore[no-any-return]  # modules


def step(model: Callable[..., torch.Tensor], parameters: list[nn.Parameter]) -> tuple[Any, ...]:
    torch.manual_seed(3)
    loss = model(drawn(4, 8, dtype=torch.float32).detach(), TARGETS)
    return loss, *torch.autograd.grad(loss, parameters)


@pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated:DeprecationWarning")  # of torch about itself
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_without_a_break(backend: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Everything()
    parameters = list(model.parameters())
    if backend == "inductor":  # draws its own random numbers, as it does for torch's dropout
        model.eval()
    compiled: Any = torch.compile(model, backend=backend, fullgraph=True)
    expected = step(model, parameters)
    torch.testing.assert_close(step(compiled, parameters), expected)


def test_two_dropouts_of_one_graph_draw_apart() -> None:
    torch._dynamo.reset()

    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([F.dropout(x), F.dropout(x)])

    compiled: Any = torch.compile(twice, backend="aot_eager", fullgraph=True)
    x = torch.ones(200, requires_grad=True)
    y = compiled(x)
    assert not torch.equal(y[0], y[1])
    assert not torch.equal(compiled(x), y)
    (grad,) = torch.autograd.grad(y[0].sum(), x)
    assert torch.equal(grad, y[0])  # the same mask backward


def test_exported() -> None:
    model = Everything().eval()
    batch = drawn(4, 8, dtype=torch.float32).detach(), TARGETS
    program = torch.export.export(model, batch)
    names = {node.target._opname for node in program.graph.nodes if "burn_kernels" in str(node.target)}
    assert names >= {
        *("layer_norm", "rms_norm", "batch_norm_eval", "residual_layer_norm", "residual_rms_norm"),
        *("softmax", "log_softmax", "glu", "activation", "embedding", "rope", "rope_computed"),
        *("cross_entropy", *KINDS),
    }
    torch.testing.assert_close(program.module()(*batch), model(*batch))


# -- types ---------------------------------------------------------------------------------------------
def test_autocast_gives_the_types_of_torch() -> None:
    x, w, b = (t.float() for t in (X, W, B))
    pairs: list[tuple[Callable[[Any], torch.Tensor], ...]] = [
        (lambda m: m.layer_norm(x, (7,), w, b),),
        (lambda m: m.layer_norm(x.bfloat16(), (7,), w.bfloat16()),),
        (lambda m: m.rms_norm(x, (7,), w),),
        (lambda m: m.softmax(x.bfloat16(), dim=-1),),
        (lambda m: m.cross_entropy(x.bfloat16(), TARGETS),),
    ]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for (call,) in pairs:
            assert call(F).dtype == call(nn.functional).dtype
        loss = F.linear_cross_entropy(x, drawn(9, 7).float(), TARGETS)
        assert F.linear(x, drawn(9, 7).float(), activation="gelu").dtype == torch.bfloat16
    exact = nn.functional.cross_entropy(x.bfloat16() @ drawn(9, 7).bfloat16().T, TARGETS)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact.float(), rtol=1e-2, atol=0.0)


@pytest.mark.gpu
def test_autocast_on_a_gpu_gives_the_types_of_torch() -> None:
    x, w = (t.float().cuda() for t in (X, W))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for name, more in (
            ("layer_norm", ((7,), w)),
            ("rms_norm", ((7,), w)),
            ("softmax", (-1,)),
            ("log_softmax", (-1,)),
        ):
            output = getattr(F, name)(x.bfloat16(), *more)
            with warnings.catch_warnings():  # torch's own norms say so where autocast leaves weights in float32
                warnings.filterwarnings("ignore", "Mismatch dtype between input and weight", UserWarning)
                expected = getattr(nn.functional, name)(x.bfloat16(), *more)
            if name == "rms_norm" and not torch._C._dispatch_has_kernel_for_dispatch_key(
                "aten::rms_norm", "AutocastCUDA"
            ):
                expected = expected.float()  # torch 2.11 forgot it among the norms; ours is as newer ones
            assert output.dtype == expected.dtype, name


def test_types_that_differ_go_to_torch_and_that_is_said_once() -> None:
    defining._FALLBACKS.clear()
    x, w = X.detach().bfloat16(), W.detach().float()
    with pytest.warns(RuntimeWarning, match="plain torch computes layer_norm: of different element types"):
        output = F.layer_norm(x, (7,), w, w)
    assert torch.equal(output, nn.functional.layer_norm(x, (7,), w, w))
    F.layer_norm(x, (7,), w, w)
    assert bk.fallbacks() == {"layer_norm: of different element types": 2}


def test_a_kernel_past_its_limit_gives_way_to_the_reference_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    defining._FALLBACKS.clear()

    def limited(*_: Any) -> Any:
        raise KernelLimitError("softmax: the kernel does not\n  given:    torch.float64\n  expected: float32")

    x = X.detach()
    monkeypatch.setattr(registering._DEFINED["softmax"], "launch", limited)
    with pytest.warns(RuntimeWarning, match="plain torch computes softmax: torch.float64"):
        assert torch.equal(torch.ops.burn_kernels.softmax(x), softmax.forward.reference(x))
    assert torch.equal(torch.ops.burn_kernels.softmax(x), softmax.forward.reference(x))
    assert bk.fallbacks() == {"softmax: torch.float64": 2}


# -- promises ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CASES)
def test_results_are_tensors_of_their_own_and_inputs_stay(name: str) -> None:
    _, args = CASES[name]
    kept = copy.deepcopy([a.detach() if isinstance(a, torch.Tensor) else a for a in args])
    output = outputs(name)(*args)
    ys = output if isinstance(output, tuple) else (output,)
    torch.autograd.backward(ys, [torch.randn_like(y) for y in ys])
    for before, after in zip(kept, args, strict=True):
        if isinstance(after, torch.Tensor):
            assert torch.equal(before, after)
            assert all(y.untyped_storage().data_ptr() != after.untyped_storage().data_ptr() for y in ys)
            after.grad = None
    assert all(_dense(y) for y in ys)


def test_vmap_goes_over_the_batch_one_by_one() -> None:
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(torch.vmap(OPS.softmax, in_dims=1)(x), torch.softmax(x.movedim(1, 0), -1))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            r"layer_norm: the sizes do not fit.*normalized_shape \(6,\).*input \(\*batch, 6\).*last axes",
            lambda: F.layer_norm(X, (6,)),
        ),
        (
            r"rms_norm: the sizes do not fit.*weight \(6,\).*weight and bias \(7,\)",
            lambda: F.rms_norm(X, (7,), W[:6]),
        ),
        (r"gated unit: the axis cannot be halved.*gate \(4, 7\).*even size.*two tensors", lambda: F.swiglu(X)),
        (
            r"embedding: padding_idx is no row.*padding_idx 9, weight \(4, 7\).*from -4 to 3",
            lambda: F.embedding(TARGETS, X, 9),
        ),
        (
            r"rope: the tables carry no gradient.*cos or sin that requires one.*constants.*cos.detach",
            lambda: F.rope(torch.ones(1, 2, 1, 4), None, drawn(2, 2), drawn(2, 2)),
        ),
        (r"ReLU: no form in place.*inplace True.*writes to its input.*leave it out", lambda: bk.ReLU(inplace=True)),
        (r"gelu: no such approximation.*'fast'.*'none' or 'tanh'.*GELU", lambda: F.gelu(X, "fast")),
        (r"geglu: no such approximation.*'fast'.*'none' or 'tanh'.*GELU", lambda: F.geglu(X, X, approximate="fast")),
        (
            r"Dropout: no form in place.*inplace True.*writes to its input.*leave it out",
            lambda: bk.Dropout(inplace=True),
        ),
        (
            r"Linear: no such activation.*'mish'.*one of none, .*exact form",
            lambda: bk.Linear(3, 4, activation="mish"),
        ),
        (
            r"cross_entropy: the weights of classes carry no.*weight \(7,\) float64 cpu that req.*const.*detach",
            lambda: F.cross_entropy(X, TARGETS, W),
        ),
        (
            r"cross_entropy: z_loss has no form beside.*z_loss 0.1, of class prob.*class numbers.*add z_loss",
            lambda: F.cross_entropy(X, X.softmax(-1), z_loss=0.1),
        ),
        (
            r"LinearCrossEntropyLoss: an option without.*out_features \(2,\).*out_features \(\).*torch.nn",
            lambda: bk.LinearCrossEntropyLoss(3, 4, out_features=(2,)),
        ),
    ],
)
def test_refusals(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(KernelError, match=f"(?s){message}"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.layer_norm(X, (7,), x[0]),
        lambda x: F.linear(X, x),
        lambda x: torch.ops.burn_kernels.tensor_norm([X, x], 2.0),
        lambda x: F.embedding(TARGETS.to("meta"), X),
    ],
)
def test_tensors_without_content_beside_others_are_refused(call: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(
        KernelDeviceError, match=r"(?s)lie on different devices.*meta.*all on (cpu|meta).*x\.to\(device"
    ):
        call(X.to("meta"))


def test_attention_without_a_seed_drops_by_key_0() -> None:
    rule = (None, False, "top_left", None, None)
    y, _ = OPS.attention(*HEADS, None, None, None, *rule, 0.5, True)
    expected, _ = OPS.attention(*HEADS, None, None, torch.tensor([0, 0]), *rule, 0.5, True)
    kept, _ = OPS.attention(*HEADS, None, None, None, *rule, 0.0, True)
    assert torch.equal(y, expected)
    assert not torch.equal(y, kept)
    packed = (*PACKED, 3, 3)
    y, _ = OPS.attention_packed(*packed, None, *rule, 0.5)
    expected, _ = OPS.attention_packed(*packed, torch.tensor([0, 0]), *rule, 0.5)
    assert torch.equal(y, expected)
    grads, others = (
        torch.autograd.grad(OPS.attention(*HEADS, None, None, seed, *rule, 0.5, True)[0].sum(), HEADS)
        for seed in (None, torch.tensor([0, 0]))
    )
    for grad, other in zip(grads, others, strict=True):
        assert torch.equal(grad, other)


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda: OPS.activation(X, "gelu"), 55),  # 53, and 70 where values were looked up by name in each call
        (lambda: OPS.layer_norm(X, W, B, 1e-5)[0], 72),
    ],
)
def test_a_declared_operator_costs_few_calls(call: Callable[[], torch.Tensor], most: int) -> None:
    def forward_and_backward() -> None:
        y = call()
        torch.autograd.grad(y, (X, W, B), torch.ones_like(y), allow_unused=True)

    count = 0

    def note(frame: Any, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and "burn_kernels" in frame.f_code.co_filename

    forward_and_backward()
    sys.setprofile(note)
    try:
        forward_and_backward()
    finally:
        sys.setprofile(None)
    assert 10 < count <= most


def test_dropout_without_a_seed_is_refused() -> None:
    with pytest.raises(KernelArgumentError, match=r"(?s)dropout: there is no seed.*None.*key and stream.*randint"):
        OPS.dropout(torch.ones(3), 0.5, None)


@pytest.mark.gpu
def test_a_seed_on_a_device_is_refused() -> None:
    with pytest.raises(KernelDeviceError, match=r"(?s)seed lies on a device.*cuda.*on the CPU.*seed.cpu"):
        OPS.dropout(torch.ones(3), 0.5, SEED.cuda())
