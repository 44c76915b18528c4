"""Reductions in the interpreter: every config, cut axes, NaN, infinities and equals."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels import reduce  # after the check for triton
from burn_kernels.launch import H200
from burn_kernels.reduce import Config
from burn_kernels.spec import Draw

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning")

CUT = Config(2, 16, 1, 8)  # of 200 elements, parts of 64
KINDS = [kind for kind in reduce.KINDS if not kind.startswith("arg")]


def found(kind: str, x: torch.Tensor, dim: int | None, config: Config | None = None) -> torch.Tensor:
    results = getattr(reduce, kind)(x, dim, config=config)
    y: torch.Tensor = results[0] if isinstance(results, tuple) else results
    return y


@pytest.mark.parametrize("kind", reduce.KINDS)
@pytest.mark.parametrize("dim", [0, 1, None])
def test_every_candidate(kind: str, dim: int | None) -> None:
    rows, cols = (29, 67) if dim == 0 else (5, 403)
    x = Draw(1).normal(rows, cols, mean=0.5).float()
    exact = reduce.reference(kind, x.double(), dim)[0]
    sizes = {0: (cols, rows), 1: (rows, cols), None: (1, rows * cols)}[dim]
    for config in (*reduce.candidates(*sizes, 4, H200, along=dim != 0), Config(1, 64, 1, 16)):
        # float32 sums of 2000 numbers of order 1
        torch.testing.assert_close(found(kind, x, dim, config).double(), exact.double(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["amax", "amin", "argmax", "argmin", "logsumexp", "sum"])
@pytest.mark.parametrize("config", [None, CUT], ids=["whole", "cut"])
def test_numbers_that_are_none(kind: str, config: Config | None) -> None:
    x = Draw(2).normal(9, 200).float()
    x[1, 150] = torch.nan
    x[2, [70, 170]] = torch.nan
    x[3, 40] = torch.inf
    x[4, [3, 90]] = torch.inf
    x[5, 60] = -torch.inf
    x[6] = -torch.inf
    x[7] = torch.inf
    x[8, [1, 2]] = torch.tensor([torch.inf, torch.nan])
    call = getattr(torch, kind)
    torch.testing.assert_close(found(kind, x, 1, config), call(x, 1), equal_nan=True)


@pytest.mark.parametrize("config", [None, CUT], ids=["whole", "cut"])
def test_the_first_of_equals(config: Config | None) -> None:
    x = torch.zeros(4, 200)
    x[1, [77, 78, 190]] = 1.0
    x[2, ::2] = -0.0  # no less than 0
    x[3, [130, 131]] = -1.0
    assert reduce.argmax(x, 1, config=config).tolist() == [0, 77, 0, 0]
    assert reduce.argmin(x, 1, config=config).tolist() == [0, 0, 0, 130]
    assert reduce.argmax(x, config=config).item() == 277
    assert reduce.argmax(x.T.contiguous(), 0, config=config).tolist() == [0, 77, 0, 0]


@pytest.mark.parametrize(("kind", "dtype"), [("argmax", torch.bfloat16), ("argmin", torch.float32)])
def test_places_in_columns(kind: str, dtype: torch.dtype) -> None:
    x = Draw(6).normal(83, 49).to(dtype)
    x[[50, 70], 7] = torch.nan
    x[:, 9] = -torch.inf
    x[:, 10] = torch.inf
    x[:, 11] = torch.tensor([-0.0, 0.0]).to(dtype).repeat(42)[:83]
    x[[82, 40], 12] = 50.0
    x[[82, 40, 43], 13] = -50.0
    exact = getattr(torch, kind)(x, 0)
    # tiles that end within the columns and within the rows, one row a tile, parts and none, one element at a time
    for tile in (Config(32, 4, 1, 4, 2, stages=3), Config(64, 1, 1, 4, 4), Config(64, 8, 1, 1, 4), Config(64, 2, 1, 1)):
        assert torch.equal(getattr(reduce, kind)(x, 0, config=tile), exact), tile
    assert torch.equal(getattr(reduce, kind)(x.repeat(1, 2)[:, :49], 0), exact)
    assert torch.equal(getattr(reduce, kind)(x[:3], 0), getattr(torch, kind)(x[:3], 0))
    wide = Draw(7).normal(2, 9, 2, 35).to(dtype)
    for axis in (0, 1, 2):  # results of several outer axes, one after the other
        assert torch.equal(getattr(reduce, kind)(wide, axis), getattr(torch, kind)(wide, axis))


def test_variance_keeps_its_digits_far_from_zero() -> None:
    # mean 1000, deviation 1, and one far number: a sum of squares would leave nothing
    x = Draw(3).normal(3, 5000, mean=1000.0).float()
    x[1, 0] = 0.0
    for config in (None, Config(1, 128, 1, 16)):
        y, mean = reduce.var(x, 1, config=config)
        torch.testing.assert_close(y.double(), x.double().var(1), rtol=1e-5, atol=0.0)
        torch.testing.assert_close(mean.double(), x.double().mean(1), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_several_axes_of_other_layouts(kind: str) -> None:
    x = Draw(4).normal(3, 4, 5, 40).float()
    for view in (x, x.permute(3, 0, 2, 1), x.contiguous(memory_format=torch.channels_last), x[:, ::2]):
        for dims in ((0, 2, 3), (0, 2), (1, 3), (0, 1, 2, 3)):
            y = getattr(reduce, kind)(view, dims)
            exact = reduce.reference(kind, view.double(), dims)[0]
            torch.testing.assert_close((y[0] if isinstance(y, tuple) else y).double(), exact, rtol=1e-5, atol=1e-5)


def test_gradients_of_other_layouts() -> None:
    x = Draw(5).normal(3, 4, 5, 40).float().requires_grad_()
    for view in (x, x.permute(3, 0, 2, 1), x[:, ::2]):
        for dims in ((0, 2, 3), (0, 2), (1, 3)):
            inside = view.detach()
            y, mean = reduce.var(inside, dims)
            dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
            (expected,) = torch.autograd.grad(view.var(dims), view, dy, retain_graph=True)
            torch.testing.assert_close(reduce.var_backward(dy, inside, mean, dims), expected)
            (expected,) = torch.autograd.grad(torch.amax(view, dims), view, dy, retain_graph=True)
            torch.testing.assert_close(reduce.extreme_backward(dy, inside, reduce.amax(inside, dims), dims), expected)
