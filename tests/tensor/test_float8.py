"""Floats of 8 bits: stored, moved and cast as torch does; what computes on them is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from burn_torch import Device, Distribution, DType, Module, Param, Tensor, compile
from burn_torch.core.data import TensorData
from burn_torch.core.errors import AutodiffError, BurnTorchError, DTypeError

CPU = Device.cpu()
TYPES = [(DType.F8_E4M3, torch.float8_e4m3fn), (DType.F8_E5M2, torch.float8_e5m2)]
by_type = pytest.mark.parametrize(("dtype", "theirs"), TYPES, ids=["e4m3", "e5m2"])


def values() -> np.ndarray:
    """Ties, ends of the range, subnormals, zeros of both signs, infinities and NaN."""
    ends = [0.0, 448.0, 464.0, 465.0, 57344.0, 61439.0, 61440.0, 1e9, np.inf, 2.0**-9, 2.0**-10, 2.0**-17]
    drawn = np.random.default_rng(3).normal(0, 60, 214)
    return np.concatenate([ends, np.negative(ends), [np.nan, 17.0, 19.0, 1.0625, 1.1875], drawn, drawn / 1e4]).astype(
        np.float32
    )


def codes(values: np.ndarray, theirs: torch.dtype) -> np.ndarray:
    """torch's codes; e4m3 stays at its largest number in every version of torch."""
    x = torch.from_numpy(values)
    x = x.clamp(-448, 448) if theirs is torch.float8_e4m3fn else x
    return np.asarray(x.to(theirs).view(torch.uint8))


@by_type
def test_casts_are_those_of_torch(dtype: DType, theirs: torch.dtype) -> None:
    x, expected = values(), codes(values(), theirs)
    wide = torch.from_numpy(expected).view(theirs).float().numpy()
    for device in (CPU, Device.cpu(fused=True), CPU.autodiff()):
        y = Tensor.from_data(x, device).cast(dtype)
        assert np.array_equal(y.into_data().array, expected)
        assert np.array_equal(np.asarray(y.float()), wide, equal_nan=True)
    data = TensorData.of(x).convert(dtype)
    assert np.array_equal(data.array, expected)
    assert np.array_equal(data.values, wide, equal_nan=True)


@by_type
def test_every_code_comes_back(dtype: DType, theirs: torch.dtype) -> None:
    tensor = torch.arange(256, dtype=torch.uint8).view(theirs)
    x = Tensor.from_torch(tensor)
    assert x.dtype is dtype
    assert x.into_torch().dtype is theirs
    assert np.array_equal(np.asarray(x), tensor.float().numpy(), equal_nan=True)
    assert np.array_equal(np.asarray(TensorData.of(tensor)), tensor.float().numpy(), equal_nan=True)
    known = torch.finfo(theirs)
    ours = dtype.finfo()
    assert (ours.bits, ours.epsilon, ours.max, ours.min_positive) == (8, known.eps, known.max, known.tiny)
    assert ours.smallest_subnormal == tensor.double()[1]


MOVES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[torch.Tensor], torch.Tensor]]] = {
    "flip": (lambda x: x.flip([0]), lambda x: x.flip(0)),
    "transpose": (lambda x: x.transpose(), lambda x: x.t()),
    "slice": (lambda x: x[1:, ::2], lambda x: x[1:, ::2]),
    "cat": (lambda x: Tensor.cat([x, x], 1), lambda x: torch.cat([x, x], 1)),
    "select": (lambda x: x.select(0, Tensor.from_data([2, 0], CPU)), lambda x: x[[2, 0]]),
    "gather": (lambda x: x.gather(1, Tensor.from_data([[3]] * 4, CPU)), lambda x: x[:, 3:4]),
    "roll": (lambda x: x.roll([1], [1]), lambda x: x.roll(1, 1)),
    "tril": (lambda x: x.tril(), lambda x: x.tril()),
    "repeat": (lambda x: x.repeat_dim(0, 2), lambda x: x.repeat(2, 1)),
    "expand": (lambda x: x.unsqueeze_dim(0).expand((2, 4, 5)), lambda x: x.expand(2, 4, 5)),
    "mask": (lambda x: x.mask_select(x.float() > 0), lambda x: x[x > 0]),
    "compiled": (compile(lambda x: x.flip([1]).transpose()), lambda x: x.flip(1).t()),
}


@by_type
@pytest.mark.parametrize("name", MOVES)
def test_moving_changes_no_bit(dtype: DType, theirs: torch.dtype, name: str) -> None:
    x = Tensor.from_data(values()[:20].reshape(4, 5), CPU).cast(dtype)
    ours, known = MOVES[name][0](x), MOVES[name][1](x.into_torch().float())
    assert ours.dtype is dtype
    assert np.array_equal(np.asarray(ours), known.numpy(), equal_nan=True)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x + x,
        lambda x: x.sum(),
        lambda x: x.equal(x),
        lambda x: x.matmul(x),
        lambda x: x.sort(0),
        lambda x: x.any(),
        lambda x: x.exp(),
        lambda x: x.mask_fill(x.float() > 0, 1.0),
        lambda x: Tensor.zeros((2,), (CPU, x.dtype)),
        lambda x: Tensor.random((2,), Distribution.Default, (CPU, x.dtype)),
        lambda x: x.to_device(Device.ndarray()),
        lambda x: Tensor.from_data([1e6], CPU, x.dtype),
    ],
)
def test_what_computes_is_refused_with_the_cast_to_write(compute: Callable[[Tensor], object]) -> None:
    x = Tensor.from_data([[1.0, 2.0], [3.0, 4.0]], CPU).cast(DType.F8_E4M3)
    with pytest.raises(DTypeError, match=r"given:(.|\n)*expected:(.|\n)*mend:"):
        compute(x)


def test_gradients_end_at_floats_of_8_bits() -> None:
    x = Tensor.from_data([1.0], CPU).cast(DType.F8_E5M2).to_device(CPU.autodiff())
    with pytest.raises(AutodiffError, match="only floats have gradients"):
        x.require_grad()


class Half(Module):
    w: Param


@by_type
@pytest.mark.parametrize("ending", ["safetensors", "bpk", "mpk"])
def test_records_keep_the_bits(dtype: DType, theirs: torch.dtype, ending: str, tmp_path: Path) -> None:
    x = Tensor.from_data([[0.3, -400.0], [1.5, 2.0]], CPU).cast(dtype)
    path = tmp_path / f"half.{ending}"
    Half(w=Param.from_tensor(x)).save_file(path)
    loaded = Half(w=Param.from_tensor(x.flip([0]))).load_file(path)
    assert np.array_equal(loaded.w.val().into_data().array, x.into_data().array)
    if ending == "safetensors":
        known = pytest.importorskip("safetensors.torch").load_file(path)
        assert known["w"].dtype is theirs
    with pytest.raises(BurnTorchError, match=r"f8_e"):
        Half(w=Param.from_tensor(x.float())).load_file(path)  # without its scale it would be another weight
