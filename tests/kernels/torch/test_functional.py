"""Functions in the place of those of torch: the same parameters, the same odd shapes, and what is refused."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import burn_kernels.torch as bk
from burn_kernels import KernelArgumentError, KernelError
from burn_kernels.spec import Draw
from burn_kernels.torch import defining
from burn_kernels.torch import functional as F


@pytest.fixture(autouse=True)
def no_fallbacks() -> Iterator[None]:
    """Each test begins as if nothing had gone to torch yet."""
    defining._FALLBACKS.clear()
    yield
    defining._FALLBACKS.clear()


def leaf(*shape: int, seed: int = 0) -> torch.Tensor:
    return Draw(seed).normal(*shape).requires_grad_()


def with_gradients(call: Callable[..., torch.Tensor], *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = call(*leaves)
    return y, *torch.autograd.grad(y, leaves, Draw(9).normal(*y.shape))


def agree(call: Callable[[Any], Callable[..., torch.Tensor]], *leaves: torch.Tensor) -> None:
    """Ours and torch's give the same result and the same gradients."""
    with warnings.catch_warnings():  # of torch about paddings that it has to copy for
        warnings.filterwarnings("ignore", "Using padding='same'", UserWarning)
        torch.testing.assert_close(*(with_gradients(call(home), *leaves) for home in (F, nn.functional)))


# -- parameters ----------------------------------------------------------------------------------------
WRITTEN = (
    *("batch_norm", "cross_entropy", "dropout", "embedding", "group_norm", "instance_norm", "layer_norm"),
    *("linear_cross_entropy", "log_softmax", "relu", "rms_norm", "silu", "softmax"),
)
"""Those whose parameters can be read from torch; the others are built into it."""


@pytest.mark.parametrize("name", WRITTEN)
def test_parameters_are_those_of_torch(name: str) -> None:
    if not hasattr(nn.functional, name):
        pytest.skip(f"torch.nn.functional.{name} is there from torch 2.13")
    ours, theirs = (inspect.signature(getattr(home, name)).parameters for home in (F, nn.functional))
    assert list(ours)[: len(theirs)] == list(theirs)
    defaults = {option: (ours[option].default, theirs[option].default) for option in theirs if option != "dim"}
    assert all(mine == other for mine, other in defaults.values()), defaults
    assert [ours[option].kind for option in theirs] == [theirs[option].kind for option in theirs]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_takes_all_that_torchs_takes(name: str) -> None:
    ours, theirs, x = getattr(F, name), getattr(nn.functional, name), torch.randn(3, 4, 5)
    assert ours(x, 1, 5, torch.float64).dtype == torch.float64
    torch.testing.assert_close(ours(x, dim=1, _stacklevel=5), theirs(x, dim=1))
    with pytest.warns(UserWarning, match=f"Implicit dimension choice for {name}") as warned:
        assert torch.equal(ours(x, None), theirs(x, 0))
    assert warned[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("relu", lambda x: F.relu(x, True)),
        ("silu", lambda x: F.silu(x, inplace=True)),
        ("dropout", lambda x: F.dropout(x, 0.5, True, True)),
    ],
)
def test_forms_in_place_are_refused(name: str, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(
        KernelArgumentError, match=f"(?s){name}: no form in place.*inplace True.*inplace False.*leave it out"
    ):
        call(torch.ones(3))
    assert torch.equal(F.dropout(torch.ones(3), 0.5, False, False), torch.ones(3))


# -- images --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(2, 6, 5), (0, 2, 6, 5)], ids=["one image", "no images"])
def test_convolutions_of_one_image_and_of_none(shape: tuple[int, ...]) -> None:
    operands = leaf(*shape), leaf(3, 2, 3, 2, seed=1), leaf(3, seed=2)
    agree(lambda m: lambda x, w, b: m.conv2d(x, w, b, padding=(1, 0)), *operands)
    results = with_gradients(lambda x, w, b: F.conv2d(x, w, b, relu=True, pool="max"), *operands)
    expected = with_gradients(
        lambda x, w, b: nn.functional.max_pool2d(nn.functional.conv2d(x, w, b).relu(), 2), *operands
    )
    torch.testing.assert_close(results, expected)
    module = bk.Conv2d(2, 3, 3).double()
    assert module(operands[0]).shape == (*shape[:-3], 3, 4, 3)
    assert bk.fallbacks() == {}


@pytest.mark.parametrize("kernel", [(2, 2), (3, 4), (1, 3)], ids=str)
def test_kernels_of_even_sides_pad_to_the_same_size(kernel: tuple[int, int]) -> None:
    operands = leaf(2, 2, 7, 6), leaf(3, 2, *kernel, seed=1)
    agree(lambda m: lambda x, w: m.conv2d(x, w, padding="same"), *operands)
    agree(lambda m: lambda x, w: m.conv2d(x, w, padding="same", dilation=3), *operands)


def test_instance_norms_of_no_images() -> None:
    agree(lambda m: lambda x: m.instance_norm(x), leaf(0, 3, 4, 5))
    with pytest.raises(ValueError, match="Expected more than 1 spatial element"):
        F.instance_norm(torch.ones(2, 3, 1, 1))


# -- attention -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("single", [0, 1])
def test_a_batch_of_one_goes_with_any_other(single: int) -> None:
    q, k, v = (leaf(1 if (at == 0) == (single == 0) else 3, 2, 4, 8, seed=at) for at in range(3))
    agree(lambda m: lambda q, k, v: m.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
    none = F.scaled_dot_product_attention(torch.ones(0, 2, 4, 8), torch.ones(1, 2, 4, 8), torch.ones(1, 2, 4, 8))
    assert none.shape == (0, 2, 4, 8)


# -- losses --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_probabilities_as_targets_of_a_linear_layers_loss_go_to_torch(reduction: str) -> None:
    x, w, b = leaf(2, 3, 5), leaf(7, 5, seed=1), leaf(7, seed=2)
    shares = Draw(3).normal(2, 3, 7).softmax(-1)
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": 0.1}

    def plain(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        logits = nn.functional.linear(x, w, b).movedim(-1, 1)
        return nn.functional.cross_entropy(logits, shares.movedim(-1, 1), **options)

    with pytest.warns(RuntimeWarning, match="plain torch computes linear_cross_entropy: of class probabilities"):
        results = with_gradients(
            lambda x, w, b: F.linear_cross_entropy(x, w, shares, linear_bias=b, **options), x, w, b
        )
    torch.testing.assert_close(results, with_gradients(plain, x, w, b))


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            r"linear_cross_entropy: an option without.*options 3.*None: how many rows.*accumulate",
            lambda: F.linear_cross_entropy(leaf(2, 3), leaf(4, 3), torch.tensor([0, 1]), options=3),  # type: ignore[arg-type]  # torch's class of it comes with 2.13
        ),
        (
            r"LinearCrossEntropyLoss: no such type to sum in.*accumulate torch.int32.*torch.bfloat16, or None.*leave",
            lambda: bk.LinearCrossEntropyLoss(3, 4, accumulate=torch.int32),
        ),
        (
            r"linear_cross_entropy: z_loss has no form beside.*z_loss 0.1, of class prob.*class numbers.*add z_loss",
            lambda: F.linear_cross_entropy(leaf(2, 3), leaf(4, 3), torch.ones(2, 4).double(), z_loss=0.1),
        ),
        (
            r"conv2d: no such padding.*'same', stride \(2, 1\).*'same' with stride 1.*by numbers",
            lambda: F.conv2d(leaf(1, 1, 4, 4), leaf(1, 1, 3, 3), stride=(2, 1), padding="same"),
        ),
        (
            r"conv2d: no such padding.*'full', stride \(1, 1\).*'valid'.*by numbers",
            lambda: F.conv2d(leaf(1, 1, 4, 4), leaf(1, 1, 3, 3), padding="full"),
        ),
    ],
)
def test_refusals(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(KernelError, match=f"(?s){message}"):
        call()


# -- forward-mode differentiation ----------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated:DeprecationWarning")  # of torch about itself
@pytest.mark.parametrize("tracked", [False, True])
def test_tangents_are_refused_instead_of_lost(tracked: bool) -> None:
    # an operator of torch's library without a rule for them passes its primal on, and the tangent is zero
    x, w = torch.randn(4), torch.ones(4, requires_grad=tracked)
    refused = r"(?s)rms_norm: no rule for forward-mode.*torch.func.jvp.*by torch.autograd.*unpatch"
    with pytest.raises(KernelArgumentError, match=refused):
        torch.func.jvp(lambda x: F.rms_norm(x, (4,), w), (x,), (torch.ones(4),))
    with pytest.raises(KernelArgumentError, match=refused):
        torch.func.jacfwd(lambda x: F.rms_norm(x, (4,), w))(x)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(KernelArgumentError, match=refused):
        F.rms_norm(torch.autograd.forward_ad.make_dual(x, torch.ones(4)), (4,), w)  # type: ignore[no-untyped-call]  # torch's
    assert F.rms_norm(x, (4,), w).shape == (4,)  # outside of it all is as before
