"""Functions and modules beside those of torch: results, gradients, constructors, state."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import burn_kernels.torch as bk
from burn_kernels import KernelArgumentError
from burn_kernels.torch import defining
from burn_kernels.torch import functional as F

torch.manual_seed(20)  # the operands below are the same in every run
PAIRS: dict[str, tuple[Callable[[Any], nn.Module], tuple[torch.Tensor, ...]]] = {
    "LayerNorm": (lambda m: m.LayerNorm(7, eps=1e-3), (torch.randn(3, 7),)),
    "LayerNorm of two axes": (lambda m: m.LayerNorm((3, 7)), (torch.randn(2, 3, 7),)),
    "LayerNorm without bias": (lambda m: m.LayerNorm(7, bias=False), (torch.randn(7),)),
    "LayerNorm plain": (lambda m: m.LayerNorm(7, elementwise_affine=False), (torch.randn(0, 7),)),
    "RMSNorm": (lambda m: m.RMSNorm(7), (torch.randn(2, 3, 7),)),
    "RMSNorm of two axes": (lambda m: m.RMSNorm((3, 7), eps=0.1), (torch.randn(2, 3, 7),)),
    "BatchNorm1d": (lambda m: m.BatchNorm1d(7, eps=1e-3), (torch.randn(9, 7),)),
    "BatchNorm1d of sequences": (lambda m: m.BatchNorm1d(7, momentum=None), (torch.randn(3, 7, 2),)),
    "BatchNorm2d": (lambda m: m.BatchNorm2d(3, momentum=0.3), (torch.randn(2, 3, 5, 4),)),
    "BatchNorm2d in evaluation": (lambda m: m.BatchNorm2d(3).eval(), (torch.randn(2, 3, 5, 4),)),
    "BatchNorm2d without statistics": (
        lambda m: m.BatchNorm2d(3, affine=False, track_running_stats=False).eval(),
        (torch.randn(2, 3, 5, 4),),
    ),
    "BatchNorm3d": (lambda m: m.BatchNorm3d(2), (torch.randn(2, 2, 3, 5, 4),)),
    "GroupNorm": (lambda m: m.GroupNorm(2, 6, eps=1e-3), (torch.randn(2, 6, 5),)),
    "GroupNorm without weights": (lambda m: m.GroupNorm(3, 6, affine=False), (torch.randn(2, 6, 3, 4),)),
    "InstanceNorm1d": (lambda m: m.InstanceNorm1d(3, affine=True), (torch.randn(2, 3, 7),)),
    "InstanceNorm2d": (lambda m: m.InstanceNorm2d(3), (torch.randn(2, 3, 5, 4),)),
    "InstanceNorm2d of one image": (lambda m: m.InstanceNorm2d(3), (torch.randn(3, 5, 4),)),
    "InstanceNorm3d": (lambda m: m.InstanceNorm3d(2), (torch.randn(2, 2, 3, 2, 4),)),
    "Conv2d": (lambda m: m.Conv2d(2, 5, 3, stride=2, padding=1), (torch.randn(2, 2, 7, 6),)),
    "Conv2d of groups": (lambda m: m.Conv2d(4, 4, (3, 2), groups=4, bias=False), (torch.randn(2, 4, 7, 6),)),
    "Conv2d same": (lambda m: m.Conv2d(2, 3, 3, dilation=2, padding="same"), (torch.randn(2, 2, 7, 6),)),
    "Softmax": (lambda m: m.Softmax(-1), (torch.randn(3, 7),)),
    "Softmax along the first axis": (lambda m: m.Softmax(0), (torch.randn(3, 7),)),
    "LogSoftmax": (lambda m: m.LogSoftmax(1), (torch.randn(3, 7, 2),)),
    "Softmax of a number": (lambda m: m.Softmax(0), (torch.tensor(2.0),)),
    "GELU": (lambda m: m.GELU(), (torch.randn(3, 7),)),
    "GELU by tanh": (lambda m: m.GELU("tanh"), (torch.randn(()),)),
    "SiLU": (lambda m: m.SiLU(), (torch.randn(7, 3).T,)),
    "ReLU": (lambda m: m.ReLU(), (torch.randn(0, 3),)),
    "CrossEntropyLoss": (lambda m: m.CrossEntropyLoss(), (torch.randn(4, 7), torch.tensor([1, 6, -100, 0]))),
    "CrossEntropyLoss none": (
        lambda m: m.CrossEntropyLoss(reduction="none", ignore_index=3, label_smoothing=0.2),
        (torch.randn(4, 7, 2), torch.tensor([[1, 6], [3, 3], [2, 0], [5, 4]])),
    ),
    "CrossEntropyLoss weighted": (
        lambda m: m.CrossEntropyLoss(torch.linspace(0.2, 3.0, 7), label_smoothing=0.2),
        (torch.randn(4, 7, 2), torch.tensor([[1, 6], [3, -100], [2, 0], [5, 4]])),
    ),
    "CrossEntropyLoss weighted none": (
        lambda m: m.CrossEntropyLoss(torch.linspace(0.2, 3.0, 7), reduction="none", label_smoothing=0.2),
        (torch.randn(4, 7), torch.tensor([1, 6, -100, 0])),
    ),
    "CrossEntropyLoss weighted sum": (
        lambda m: m.CrossEntropyLoss(torch.linspace(0.0, 3.0, 7), reduction="sum"),
        (torch.randn(4, 7), torch.tensor([1, 6, -100, 0])),
    ),
    "CrossEntropyLoss of one": (lambda m: m.CrossEntropyLoss(), (torch.randn(7), torch.tensor(3))),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_modules_compute_what_those_of_torch_compute(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(21)
    make, (x, *rest) = PAIRS[name]
    theirs, ours = make(nn).to(dtype), make(bk).to(dtype)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, 1.0)
    assert ours.load_state_dict(theirs.state_dict()).missing_keys == []
    results: list[Any] = []
    for module in (theirs, ours):
        leaf = x.to(dtype).requires_grad_()
        y = module(leaf, *rest)
        torch.manual_seed(0)
        grads = torch.autograd.grad(y, (leaf, *module.parameters()), torch.randn(y.shape).to(y.dtype))
        results.append((y, *grads))
    # in bfloat16 the roundings differ in the last of 8 bits
    torch.testing.assert_close(results[1], results[0], rtol=4e-2 if dtype == torch.bfloat16 else 1e-12, atol=1e-2)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, buffer in theirs.named_buffers():
        torch.testing.assert_close(ours.get_buffer(name), buffer, rtol=2e-2, atol=1e-2)
    assert repr(ours) == repr(theirs)


MORE = {"CrossEntropyLoss": ["z_loss"]}
"""Options that torch's constructors have not."""


@pytest.mark.parametrize(
    "name",
    [
        "GELU",
        "SiLU",
        "ReLU",
        "Embedding",
        "BatchNorm2d",
        "Conv2d",
        "GroupNorm",
        "InstanceNorm2d",
        "LayerNorm",
        "RMSNorm",
        "Softmax",
        "LogSoftmax",
        "CrossEntropyLoss",
        "Dropout",
    ],
)
def test_constructors_are_those_of_torch(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(home, name)).parameters for home in (bk, nn))
    assert list(ours) == [*theirs, *MORE.get(name, [])]
    assert all(ours[option].default == theirs[option].default for option in theirs)


@pytest.mark.parametrize(
    "options",
    [{}, {"padding_idx": -1}, {"padding_idx": 2, "scale_grad_by_freq": True}],
    ids=["plain", "padding", "scaled"],
)
def test_an_embedding_is_that_of_torch(options: dict[str, Any]) -> None:
    theirs, ours = nn.Embedding(5, 3, **options), bk.Embedding(5, 3, **options)
    ours.load_state_dict(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    for indices in (torch.tensor([[0, 2, 4], [4, 2, 2]], dtype=torch.int32), torch.empty(0, dtype=torch.int64)):
        pair = [module(indices) for module in (ours, theirs)]
        dy = torch.randn(pair[0].shape)
        assert torch.equal(*pair)
        torch.testing.assert_close(
            *(torch.autograd.grad(y, m.weight, dy)[0] for y, m in zip(pair, (ours, theirs), strict=True))
        )


def test_an_embedding_with_max_norm_is_left_to_torch() -> None:
    defining._FALLBACKS.clear()
    weight = torch.randn(4, 3)
    with pytest.warns(RuntimeWarning, match="plain torch computes embedding: with max_norm"):
        rows = F.embedding(torch.tensor([1, 3]), weight.clone(), max_norm=0.5)
    assert torch.equal(rows, nn.functional.embedding(torch.tensor([1, 3]), weight.clone(), max_norm=0.5))


# -- residual norms ------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("shape", [7, (3, 7)], ids=str)
def test_a_residual_norm_is_a_sum_and_a_norm(kind: str, shape: Any) -> None:
    ours, norm = getattr(bk, f"Residual{kind}")(shape, 0.1), getattr(nn, kind)(shape, 0.1)
    for p in norm.parameters():
        nn.init.normal_(p, 1.0)
    ours.load_state_dict(norm.state_dict())
    x, residual = (torch.randn(2, 3, 7, requires_grad=True) for _ in range(2))
    results: list[Any] = []
    for y, s in (ours(x, residual), (norm(x + residual), x + residual)):
        upstream = [
            torch.linspace(-1.0, 1.0, y.numel()).view(y.shape),
            torch.linspace(0.0, 1.0, s.numel()).view(s.shape),
        ]
        module = ours if len(results) == 0 else norm
        results.append((y, s, *torch.autograd.grad((y, s), (x, residual, *module.parameters()), upstream)))
    torch.testing.assert_close(*results)
    assert "p=0.0" in repr(ours)


def test_a_residual_norm_drops_in_training_alone_and_the_same_again_for_a_seed() -> None:
    module, x, residual = bk.ResidualRMSNorm(400, p=0.25), torch.ones(2, 400), torch.zeros(2, 400)
    torch.manual_seed(1)
    _, s = module(x, residual)
    assert 0.6 < (s != 0).float().mean().item() < 0.9  # 10 standard deviations of 800 draws
    assert not torch.equal(module(x, residual)[1], s)
    torch.manual_seed(1)
    assert torch.equal(module(x, residual)[1], s)
    assert torch.equal(module.eval()(x, residual)[1], x)
    seed = torch.tensor([5, 6])
    y, s = F.residual_layer_norm(x, residual, (400,), p=0.25, seed=seed)
    assert torch.equal(s, F.dropout(x, 0.25, seed=seed))
    torch.testing.assert_close(y, nn.functional.layer_norm(s, (400,)))


def test_a_residual_norm_of_two_types_goes_to_torch() -> None:
    defining._FALLBACKS.clear()
    x, residual = torch.randn(3, 7).bfloat16(), torch.randn(3, 7)
    with pytest.warns(RuntimeWarning, match="plain torch computes residual_rms_norm: of different element types"):
        y, s = F.residual_rms_norm(x, residual, (7,))
    torch.testing.assert_close((y, s), (nn.functional.rms_norm(x + residual, (7,)), x + residual))


# -- reductions ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["sum", "mean", "var", "logsumexp", "amax", "amin", "argmax", "argmin"])
@pytest.mark.parametrize("dim", [0, -1, (0, 2), (), None], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions_are_those_of_torch(kind: str, dim: Any, keepdim: bool) -> None:
    if kind.startswith("arg") and isinstance(dim, tuple):
        pytest.skip("a place is along one axis")
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    axes = tuple(range(3)) if dim in ((), None) and kind in ("logsumexp", "var", "amax", "amin") else dim
    output = getattr(F, kind)(x, dim, keepdim=keepdim)
    expected = getattr(torch, kind)(x, axes, keepdim=keepdim)
    torch.testing.assert_close(output, expected)
    if not kind.startswith("arg"):
        dy = torch.randn(output.shape, dtype=torch.float64)
        torch.testing.assert_close(*(torch.autograd.grad(y, x, dy)[0] for y in (output, expected)))


def test_reductions_cast_first_and_leave_integers_to_torch() -> None:
    defining._FALLBACKS.clear()
    x = torch.full((3, 1000), 0.1, dtype=torch.float16)
    assert F.sum(x, 1, dtype=torch.float32).dtype == torch.float32
    torch.testing.assert_close(F.mean(x, 1, dtype=torch.float64), x.double().mean(1))
    whole = torch.arange(6).reshape(2, 3)
    with pytest.warns(RuntimeWarning, match="plain torch computes sum: of int64"):
        assert torch.equal(F.sum(whole, 0), whole.sum(0))
    with pytest.warns(RuntimeWarning, match="plain torch computes amax: of int64"):
        assert F.amax(whole) == 5
    with pytest.warns(RuntimeWarning, match="plain torch computes argmax: of int64"):
        assert torch.equal(F.argmax(whole, 1), whole.argmax(1))


# -- z_loss --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_z_loss_adds_the_squared_logsumexp(reduction: str, weighted: bool, smoothing: float) -> None:
    x, head = torch.randn(6, 5, dtype=torch.float64), torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([1, -100, 8, 0, -100, 3])
    weight = torch.linspace(0.1, 4.0, 9, dtype=torch.float64) if weighted else None
    options: dict[str, Any] = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
    logits = x @ head.T
    # of each row by hand: the mean of cross entropy is by weights, that of the squares by rows
    squares = 0.05 * torch.stack([torch.log(torch.exp(row).sum()) ** 2 for row in logits]) * (targets != -100)
    more = {"none": squares, "sum": squares.sum(), "mean": squares.sum() / 4}[reduction]
    exact = nn.functional.cross_entropy(logits, targets, **options) + more
    upstream = torch.randn(exact.shape, dtype=torch.float64)
    (grad,) = torch.autograd.grad(exact, head, upstream, retain_graph=True)
    chunked = F.linear_cross_entropy(x, head, targets, z_loss=0.05, **options)
    for losses in (F.cross_entropy(logits, targets, z_loss=0.05, **options), chunked):
        torch.testing.assert_close(losses, exact)
        torch.testing.assert_close(torch.autograd.grad(losses, head, upstream, retain_graph=True)[0], grad)
    if reduction != "none":
        loss = bk.CrossEntropyLoss(weight, reduction=reduction, label_smoothing=smoothing, z_loss=0.05)
        torch.testing.assert_close(loss(logits, targets), exact)
        module = bk.LinearCrossEntropyLoss(
            5, 9, weight=weight, reduction=reduction, label_smoothing=smoothing, z_loss=0.05
        )
        module.linear.weight = nn.Parameter(head.detach())
        torch.testing.assert_close(module(x, targets), exact)


def test_weights_of_rows_that_are_all_ignored_give_what_torch_gives() -> None:
    x, weight = torch.randn(3, 4, requires_grad=True), torch.rand(4)
    for targets in (torch.full((3,), -100), torch.empty(0, dtype=torch.int64)):
        rows = x[: targets.shape[0]]
        for reduction in ("mean", "sum"):
            options: dict[str, Any] = {"weight": weight, "reduction": reduction}
            loss, exact = (m.cross_entropy(rows, targets, **options) for m in (F, nn.functional))
            torch.testing.assert_close(loss, exact, equal_nan=True)
            torch.testing.assert_close(torch.autograd.grad(loss, x)[0], torch.zeros(3, 4))


def test_linear_cross_entropy_is_a_linear_layer_and_its_loss() -> None:
    ours = bk.LinearCrossEntropyLoss(5, 11, bias=True, label_smoothing=0.1)
    x, targets = torch.randn(2, 3, 5), torch.tensor([[1, 10, -100], [0, 3, 3]])
    logits = ours.linear(x).reshape(6, 11)
    expected = nn.functional.cross_entropy(logits, targets.flatten(), label_smoothing=0.1)
    torch.testing.assert_close(ours(x, targets), expected)
    parameters = list(ours.parameters())
    grads = torch.autograd.grad(ours(x, targets), parameters)
    torch.testing.assert_close(grads, torch.autograd.grad(expected, parameters))
    assert list(ours.state_dict()) == ["linear.weight", "linear.bias"]
    alone = bk.LinearCrossEntropyLoss(5, 11, reduction="none")(x, targets)
    assert alone.shape == (2, 3)
    assert alone[0, 2] == 0.0


def test_its_constructor_and_state_are_those_of_torch() -> None:
    twin = getattr(nn, "LinearCrossEntropyLoss", None)
    if twin is None:
        pytest.skip("torch.nn.LinearCrossEntropyLoss is there from torch 2.13")
    theirs, ours = twin(5, 11, bias=True), bk.LinearCrossEntropyLoss(5, 11, bias=True)
    assert list(ours.load_state_dict(theirs.state_dict()).unexpected_keys) == []
    weight = torch.linspace(0.1, 2.0, 11)
    theirs, ours = twin(5, 11, weight=weight), bk.LinearCrossEntropyLoss(5, 11, weight=torch.ones(11))
    assert list(ours.load_state_dict(theirs.state_dict()).unexpected_keys) == []
    assert ours.weight is not None
    assert torch.equal(ours.weight, weight)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    names = list(inspect.signature(twin).parameters)
    assert list(inspect.signature(type(ours)).parameters)[: len(names)] == names
    x, targets = torch.randn(3, 5), torch.tensor([1, 10, 4])
    torch.testing.assert_close(ours(x, targets), theirs(x, targets))


GATES: dict[str, tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]] = {
    "SwiGLU": (bk.SwiGLU(), nn.functional.silu),
    "GEGLU": (bk.GEGLU(), nn.functional.gelu),
    "GEGLU by tanh": (bk.GEGLU(approximate="tanh"), lambda x: nn.functional.gelu(x, approximate="tanh")),
    "ReGLU": (bk.ReGLU(), nn.functional.relu),
}


@pytest.mark.parametrize("name", GATES)
def test_gated_units_of_halves_and_of_two(name: str) -> None:
    module, act = GATES[name]
    x = torch.randn(3, 10)
    gate, up = x.chunk(2, -1)
    torch.testing.assert_close(module(x), act(gate) * up)
    torch.testing.assert_close(module(gate, up), act(gate) * up)
    assert not list(module.parameters())


def test_gated_units_along_another_axis_and_of_two_types() -> None:
    x = torch.randn(4, 3)
    torch.testing.assert_close(F.swiglu(x, dim=0), nn.functional.silu(x[:2]) * x[2:])
    mixed = F.swiglu(x.bfloat16(), x)
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, nn.functional.silu(x.bfloat16().float()) * x)
    assert F.reglu(torch.tensor(2.0), torch.tensor(3.0)).item() == 6.0
    assert repr(bk.GEGLU(1, "tanh")) == "GEGLU(dim=1, approximate='tanh')"


# -- dropout -------------------------------------------------------------------------------------------
def test_dropout_is_a_function_of_its_seed() -> None:
    x, seed = torch.ones(1000), torch.tensor([5, 6])
    y = F.dropout(x, 0.25, seed=seed)
    assert torch.equal(y, F.dropout(x, 0.25, seed=seed))
    assert not torch.equal(y, F.dropout(x, 0.25, seed=seed + 1))
    assert 0.7 < (y != 0).float().mean().item() < 0.8  # 3.6 standard deviations of 1000 draws
    assert set(y.tolist()) == {0.0, torch.tensor(1 / 0.75).item()}


def test_dropout_follows_the_seed_of_torch_and_rests_in_evaluation() -> None:
    module, x = bk.Dropout(0.5), torch.ones(100)
    torch.manual_seed(1)
    one = module(x)
    assert not torch.equal(one, module(x))
    torch.manual_seed(1)
    assert torch.equal(one, module(x))
    assert module.eval()(x) is x


def test_dropout_under_a_checkpoint_drops_the_same_again() -> None:
    x = torch.ones(100, requires_grad=True)
    y: Any = torch.utils.checkpoint.checkpoint(bk.Dropout(0.5), x, use_reentrant=False)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad, y)


# -- what goes to torch --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("why", "options", "target"),
    [
        ("of class probabilities", {}, torch.randn(4, 7).softmax(-1)),
        ("with size_average or reduce", {"reduce": False}, torch.tensor([1, 2, 0, 6])),
    ],
)
@pytest.mark.filterwarnings("ignore:size_average and reduce args will be deprecated")
def test_losses_without_a_fused_form_go_to_torch_and_are_counted(
    why: str, options: dict[str, Any], target: torch.Tensor
) -> None:
    defining._FALLBACKS.clear()
    x = torch.randn(4, 7)
    with pytest.warns(RuntimeWarning, match=f"plain torch computes cross_entropy: {why}"):
        loss = F.cross_entropy(x, target, **options)
    assert torch.equal(loss, nn.functional.cross_entropy(x, target, **options))
    assert list(bk.fallbacks().values()) == [1]


def test_softmax_without_an_axis_is_left_to_torch() -> None:
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        assert torch.equal(bk.Softmax()(torch.zeros(2, 2)), torch.full((2, 2), 0.5))
    with pytest.warns(UserWarning, match="Implicit dimension choice for log_softmax"):
        bk.LogSoftmax()(torch.zeros(2, 2))


def test_the_public_names() -> None:
    assert [name for name in bk.__all__ if not hasattr(bk, name)] == []
    assert [name for name in F.__all__ if not inspect.getdoc(getattr(F, name))] == []
    assert bk.functional is F


# -- batch norm ----------------------------------------------------------------------------------------
def test_batch_norm_with_an_activation_is_the_two_modules() -> None:
    theirs, ours = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()), bk.BatchNorm2d(3)
    ours.activation = "relu"
    for _ in range(2):
        x = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        y = ours(x)
        torch.testing.assert_close(y, theirs(x))
        assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(dict(ours.named_buffers()), dict(theirs[0].named_buffers()))
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_batch_norm_of_half_images_keeps_its_statistics_in_float32() -> None:
    ours, theirs = bk.BatchNorm2d(3), nn.BatchNorm2d(3)
    x = torch.randn(2, 3, 4, 5).bfloat16()
    assert ours(x).dtype == torch.bfloat16
    theirs(x)
    assert ours.running_mean is not None
    assert ours.running_mean.dtype == torch.float32
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)


def test_batch_norm_of_one_value_a_channel_is_refused_and_without_statistics_too() -> None:
    with pytest.raises(ValueError, match="more than one value a channel"):
        bk.BatchNorm1d(3)(torch.randn(1, 3))
    with pytest.raises(
        KernelArgumentError, match=r"(?s)batch_norm: no statistics.*input.*where training is False.*both"
    ):
        F.batch_norm(torch.randn(2, 3), None, None)


# -- convolution ---------------------------------------------------------------------------------------
def test_convolution_with_what_follows_is_the_three_modules() -> None:
    theirs, ours = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2)), bk.Conv2d(1, 4, 3)
    ours.load_state_dict(theirs[0].state_dict())
    ours.relu, ours.pool = True, "max"
    x = torch.randn(3, 1, 9, 8)
    y = ours(x)
    torch.testing.assert_close(y, theirs(x))
    dy = torch.randn_like(y)
    grads, expected = (torch.autograd.grad(m(x), list(m.parameters()), dy) for m in (ours, theirs))
    torch.testing.assert_close(grads, expected)
    ours.p = 0.5
    torch.manual_seed(2)
    dropped = ours(x)
    assert not torch.equal(dropped, y)
    torch.manual_seed(2)
    assert torch.equal(ours(x), dropped)
    torch.testing.assert_close(ours.eval()(x), y)


def test_convolution_of_other_layouts_and_paddings_goes_to_torch() -> None:
    defining._FALLBACKS.clear()
    x = torch.randn(2, 3, 5, 4).contiguous(memory_format=torch.channels_last)
    ours: Any = bk.Conv2d(3, 4, 3, padding=1, padding_mode="circular")
    with pytest.warns(RuntimeWarning, match="plain torch computes conv2d: of images that are not in order"):
        y = ours(x)
    ours.__class__ = nn.Conv2d
    assert torch.equal(y, ours(x))


def test_convolution_takes_the_type_of_autocast() -> None:
    x, w = torch.randn(2, 1, 5, 4), torch.randn(3, 1, 2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert F.conv2d(x, w).dtype == nn.functional.conv2d(x, w).dtype == torch.bfloat16
