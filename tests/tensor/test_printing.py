"""Tests what a printed tensor looks like, to the letter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from burn_torch import DType
from burn_torch.core.errors import ArgumentError
from burn_torch.graph import Trace
from burn_torch.tensor import Device, PrintOptions, Tensor, set_print_options


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    yield
    set_print_options(PrintOptions.const_default())


def data(x: Tensor, spec: str = "") -> str:
    text = format(x, spec)
    return text[text.index("data:\n") + 6 : text.index(",\n  shape:")]


def test_the_whole_block() -> None:
    x = Tensor.from_data([[1.1, 2.2, 3.3], [4.4, 5.5, 6.6]], Device.cpu(fused=False))
    block = """Tensor {
  data:
[[1.1, 2.2, 3.3],
 [4.4, 5.5, 6.6]],
  shape:  [2, 3],
  device:  Cpu,
  backend:  "LibTorch",
  kind:  "Float",
  dtype:  "f32",
}"""
    assert str(x) == repr(x) == f"{x}" == block


def test_the_lines_below_the_data() -> None:
    x = Tensor.from_ints([1], Device.ndarray().autodiff())
    assert str(x).splitlines()[3:] == [
        "  shape:  [1],",
        "  device:  Cpu,",
        '  backend:  "Autodiff(NdArray)",',
        '  kind:  "Int",',
        '  dtype:  "i64",',
        "}",
    ]
    assert 'kind:  "Bool",\n  dtype:  "bool"' in str(x == 1)


def test_axes_are_lines() -> None:
    x = Tensor.arange(12, Device.cpu()).reshape(2, 2, 3)
    assert data(x) == "[[[0, 1, 2],\n  [3, 4, 5]],\n [[6, 7, 8],\n  [9, 10, 11]]]"
    assert data(x[0, 0, 0]) == "0"
    assert data(x[:, :0]) == "[[],\n []]"
    assert data(x[0, 0] > 1) == "[false, false, true]"


def test_floats_have_as_many_digits_as_tell_them_apart() -> None:
    values = [0.123456789, 1.0, 1e-7, 1e16, np.nan, np.inf, -np.inf, -0.0]
    x = Tensor.from_data(values, Device.cpu())
    assert data(x) == "[0.12345679, 1.0, 1e-07, 1e+16, NaN, inf, -inf, -0.0]"
    assert data(Tensor.from_data(values[:1], Device.cpu(), DType.F64)) == "[0.123456789]"
    assert data(Tensor.from_data([0.1], Device.cpu(), DType.F16)) == "[0.1]"
    assert data(Tensor.from_data([0.1], Device.cpu(), DType.BF16)) == "[0.100097656]"


def test_precision_by_format_and_by_option() -> None:
    x = Tensor.full((2, 2), 0.123456789, Device.cpu())
    assert data(x, ".3f") == "[[0.123, 0.123],\n [0.123, 0.123]]"
    assert data(x, ".2") == "[[0.12, 0.12],\n [0.12, 0.12]]"
    set_print_options(PrintOptions(precision=1))
    assert data(x) == "[[0.1, 0.1],\n [0.1, 0.1]]"
    assert data(x, ".2f") == "[[0.12, 0.12],\n [0.12, 0.12]]"
    assert data(Tensor.from_ints([7], Device.cpu()), ".2f") == "[7]"
    assert data(Tensor.from_data([float("nan")], Device.cpu()), ".2f") == "[NaN]"


def test_long_tensors_show_their_ends() -> None:
    assert data(Tensor.arange(1000, Device.cpu())).endswith("997, 998, 999]")
    assert data(Tensor.arange(1001, Device.cpu())) == "[0, 1, 2, ..., 998, 999, 1000]"
    x = Tensor.arange(20 * 100, Device.cpu()).reshape(20, 100)
    assert data(x) == (
        "[[0, 1, 2, ..., 97, 98, 99],\n [100, 101, 102, ..., 197, 198, 199],\n [200, 201, 202, ..., 297, 298, 299],\n"
        " ...\n [1700, 1701, 1702, ..., 1797, 1798, 1799],\n [1800, 1801, 1802, ..., 1897, 1898, 1899],\n"
        " [1900, 1901, 1902, ..., 1997, 1998, 1999]]"
    )
    assert "shape:  [20, 100]" in str(x)


def test_an_axis_of_six_is_not_shortened_and_options_change_that() -> None:
    x = Tensor.zeros((200, 6), Device.cpu())
    assert data(x).count("[0.0, 0.0, 0.0, 0.0, 0.0, 0.0]") == 6
    set_print_options(PrintOptions(threshold=3, edge_items=1))
    assert data(Tensor.arange(4, Device.cpu())) == "[0, ..., 3]"
    assert data(Tensor.arange(3, Device.cpu())) == "[0, 1, 2]"


def test_a_tracked_tensor_prints_and_keeps_its_tape() -> None:
    x = Tensor.ones((2000,), Device.cpu().autodiff()).require_grad()
    y = x * 2.0
    assert "..." in str(y)
    assert x.grad(y.backward()) is not None


def test_a_traced_tensor_prints_its_spec() -> None:
    trace = Trace()
    value = trace.input(Tensor.ones((2,), Device.cpu()).spec)
    assert repr(Tensor(trace, value.primitive, value.spec)) == "Tensor((2,) f32 cpu, Trace)"  # type: ignore[arg-type]


def test_other_formats_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"(?s)a tensor has no such format.*'>10'.*'.2f'"):
        format(Tensor.ones((1,), Device.cpu()), ">10")
