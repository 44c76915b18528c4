"""Every row of the table exported at its samples: onnxruntime computes what the row computes, or the row is refused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from burn_torch import Device, OnnxError, Tensor
from burn_torch.core.dtype import DType
from burn_torch.onnx import export
from burn_torch.ops import REGISTRY
from burn_torch.ops.samples import normalise

REFUSED = {
    **dict.fromkeys(
        ["random_bits", "uniform", "normal", "bernoulli", "randint", "dropout_mask", "dropout"], "draws random numbers"
    ),
    **dict.fromkeys(["bitwise_left_shift", "bitwise_right_shift", "last_writer", "linear_scan"], "no such operator"),
    **dict.fromkeys(["cummax_with_indices", "cummin_with_indices", "cummax", "cummin"], "no such operator"),
    **dict.fromkeys(
        ["lu", "qr", "cholesky", "eigh", "svd", "solve", "solve_triangular", "cofactors"], "no such operator"
    ),
    **dict.fromkeys(["slogdet", "pinv", "over_gaps", "row_ranks", "searchsorted"], "no such operator"),
    **dict.fromkeys(["max_pool_at", "connected_components"], "no such operator"),
    **dict.fromkeys(["grid_sample_2d_derivative", "grid_sample_2d_scatter"], "no such operator"),
    **dict.fromkeys(["conv_input_gradient", "conv_weight_gradient"], "a gradient"),
    **dict.fromkeys(["all_reduce", "all_gather", "reduce_scatter", "broadcast"], "no such operator"),
    **dict.fromkeys(["reduce_to", "mean_start"], "no such operator"),  # what several processes do together
    "cumprod": "CumProd needs opset 26",
}
"""Rows that are not written at opset 18, and what is said.  The list is exact: it may shrink, and does not grow."""

NEWER = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "grid_sample_2d", "scatter", "select_assign"}
NEWER |= {"scatter_nd"}
"""Rows that opsets before 18 cannot write, or not at all samples."""

ROWS = [
    name for name, row in REGISTRY.items() if not name.endswith("_backward") and "::" not in name and not row.barrier
]
NOT_RUN = {("interpolate", 19): "MatMul of an empty batch"}
"""Holds what onnxruntime has no kernel for."""


def called(row, drawn, attrs):
    """The row as a function of its tensors; one without tensors takes one that it does not read."""

    def function(*tensors):
        left = iter(tensors)
        operands = [next(left) if isinstance(x, np.ndarray) else x for x in drawn]
        if any(isinstance(x, np.ndarray) for x in drawn):
            return row(*operands, **attrs)
        return row.run(tensors[0].backend, Tensor, operands, attrs)

    return function


def tensors_of(drawn, kind=np.float32):
    arrays = [x.astype(kind) if x.dtype == np.float64 else x for x in drawn if isinstance(x, np.ndarray)]
    return tuple(Tensor.from_data(x, Device.cpu()) for x in arrays) or (Tensor.zeros((1,), Device.cpu()),)


def exported(name, path, opset=18, cast=None, kind=np.float32, samples=2):
    row = REGISTRY[name]
    for i, sample in enumerate(normalise(row.samples)[:samples]):
        drawn = sample.draw(np.random.default_rng(i))
        tensors = tensors_of(drawn, kind)
        if cast is not None:
            tensors = tuple(x.cast(cast) if x.dtype.is_float else x for x in tensors)
        report = export(called(row, drawn, sample.attrs), tensors, path, opset=opset)
        assert report.comparisons or (name, i) in NOT_RUN, f"sample {i}: {report.runtime}"


@pytest.mark.parametrize("name", [name for name in ROWS if name not in REFUSED and name != "fold_key"])
def test_a_row_computes_the_same_in_onnxruntime(name, tmp_path):
    exported(name, tmp_path / "row.onnx")


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_row_without_operators_is_refused_by_name_and_line(name, tmp_path):
    with pytest.raises(OnnxError, match=REFUSED[name]) as caught:
        exported(name, tmp_path / "row.onnx")
    assert "cannot be written in opset 18" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_logaddexp_keeps_what_is_small_beside_one(tmp_path):
    import onnxruntime

    x, y = np.zeros(3, np.float32), np.array([-20.0, -30.0, -0.5], np.float32)
    device = Device.cpu()
    operands = (Tensor.from_data(x, device), Tensor.from_data(y, device))
    export(lambda x, y: x.logaddexp(y), operands, tmp_path / "row.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "row.onnx"), providers=["CPUExecutionProvider"])
    (results,) = session.run(None, dict(zip([i.name for i in session.get_inputs()], (x, y), strict=True)))
    np.testing.assert_allclose(results, np.logaddexp(x.astype(np.float64), y), rtol=1e-5)


def test_everything_that_is_written_is_a_row():
    from burn_torch.onnx.rows.registry import known

    assert set(known()) <= set(REGISTRY)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 15, 18, 20, 21, 23])
@pytest.mark.parametrize("name", [name for name in ROWS if name not in REFUSED and name != "fold_key"])
def test_a_row_in_other_opsets(name, opset, tmp_path):
    if name in NEWER and opset < 18:
        with pytest.raises(OnnxError, match=r"needs opset 1[68]"):
            exported(name, tmp_path / "row.onnx", opset, samples=None)
    else:
        exported(name, tmp_path / "row.onnx", opset, samples=None)


HALF = [
    "add",
    "mul",
    "matmul",
    "linear",
    "relu",
    "softmax",
    "layer_norm",
    "mean",
    "exp",
    "sum",
    "conv",
    "max_pool_with_indices",
    "gelu",
    "sin",
]


@pytest.mark.parametrize("name", HALF)
def test_rows_of_float16(name, tmp_path):
    exported(name, tmp_path / "row.onnx", cast=DType.F16)
