"""x - max(x) is 0 at the maximum, in one kernel and in two.

So a product is the same number where it is reduced and where its maximum is subtracted.  Contracted into the
subtraction, or not rounded as what another kernel wrote, it would be its rounding there, and exp of that overflows
where x is large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from burn_torch import Device, Tensor, compile
from burn_torch.nn import CrossEntropyLossConfig
from burn_torch.tensor import activation
from tests.fusion.in_c import RUNS_C, small_kernels  # noqa: F401  # a fixture

pytestmark = [*RUNS_C, pytest.mark.usefixtures("small_kernels")]


def logsumexp(x: Any) -> Any:
    top = x.max_dim(1)
    return (x - top).exp().sum_dim(1).log() + top


FORMS: dict[str, Callable[[Any], Any]] = {
    "logsumexp": lambda x: x - logsumexp(x),
    "log_softmax": lambda x: activation.log_softmax(x, 1),
    "softmax of columns": lambda x: activation.softmax(x, 0),
    "minimum": lambda x: (x.min_dim(1) - x).exp(),
    "between 0 and 1": lambda x: (x - x.min_dim(1)) / (x.max_dim(1) - x.min_dim(1)),
    "maximum of all": lambda x: (x - x.max()).exp().sum_dim(1),
    "columns and rows": lambda x: (x - x.max_dim(0)).exp() + (x - x.max_dim(1)).exp().sum_dim(0),
    "cross entropy": lambda x: CrossEntropyLossConfig().init(x.device).forward(x, x.argmax(1).squeeze()),
}


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 1e12), (torch.float64, 1e20), (torch.bfloat16, 1e10)], ids=str
)
@pytest.mark.parametrize("form", FORMS)
def test_products_whose_maximum_is_subtracted(form: str, dtype: torch.dtype, size: float) -> None:
    drawn = torch.rand(3, 70, generator=torch.Generator().manual_seed(7), dtype=torch.float64) * 2 - 1
    x = Tensor.from_torch((drawn * size).to(dtype), Device.cpu())
    function = FORMS[form]
    actual = compile(lambda x: function(x * 1.214), fuse=True)(x).into_torch().double()
    expected = function(x * 1.214).into_torch().double()
    # a half type is rounded between operations here and not there: only what stays apart by more is compared
    near = 2**-6 if dtype is torch.bfloat16 else 1e-6
    torch.testing.assert_close(actual, expected, rtol=near, atol=near * float(expected.abs().max()))


@pytest.mark.parametrize(("dtype", "size"), [(torch.bfloat16, 1e4), (torch.float16, 3e4)], ids=str)
def test_halves_whose_maximum_another_kernel_wrote(dtype: torch.dtype, size: float) -> None:
    drawn = torch.rand(64, 700, generator=torch.Generator().manual_seed(7)) * 2 - 1
    x = Tensor.from_torch((drawn * size).to(dtype), Device.cpu())

    def below(x: Tensor) -> tuple[Tensor, Tensor]:
        scaled = x / 0.9
        return (scaled - scaled.max_dim(0)).exp().sum_dim(0), (scaled - scaled.max_dim(1)).exp()

    by_columns, by_rows = (y.into_torch().float() for y in compile(below, fuse=True)(x))
    assert by_rows.max() == 1.0
    assert (by_columns >= 1.0).all()
    assert (by_columns <= 64.0).all()
