"""Files that onnxruntime's optimisers and quantisers wrote, and operators of theirs that have no kernel for CPUs."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime as runtime
import torch
from onnx import helper
from onnxruntime import quantization

from burn_torch import Device, OnnxError, Tensor
from burn_torch.onnx import load
from burn_torch.onnx.operators.registry import find
from tests.onnx.operator_graphs import imports
from tests.onnx.random_models import session_of
from tests.onnx.small_models import cnn, mlp, transformer

CPU = Device.cpu()
LEVELS = runtime.GraphOptimizationLevel


def optimised(proto, folder, level):
    """The model as onnxruntime saves it at a level of optimisation."""
    options = runtime.SessionOptions()
    options.log_severity_level, options.graph_optimization_level = 4, level
    options.optimized_model_filepath = str(folder / "saved.onnx")
    data = proto if isinstance(proto, str) else proto.SerializeToString()
    runtime.InferenceSession(data, options, ["CPUExecutionProvider"])
    return onnx.load(folder / "saved.onnx")


def domains(proto):
    return {node.domain for node in proto.graph.node}


def difference(proto, inputs):
    """The largest difference from onnxruntime, of its largest value, on both leaves."""
    data = proto.SerializeToString()
    names = [info.name for info in proto.graph.input]
    want = session_of(data).run(None, dict(zip(names, inputs, strict=True)))
    worst = 0.0
    for device in (CPU, Device.ndarray()):
        outputs = load(data, device).forward(*[Tensor.from_data(x, device) for x in inputs])
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for got, one in zip(outputs, want, strict=True):
            worst = max(worst, float(np.abs(got.into_data().values - one).max() / np.abs(one).max()))
    return worst


class Reader(quantization.CalibrationDataReader):
    def __init__(self, proto, inputs):
        names = [info.name for info in proto.graph.input]
        self.feeds = iter([dict(zip(names, inputs, strict=True))])

    def get_next(self):
        return next(self.feeds, None)


@pytest.mark.parametrize("build", [mlp, transformer, cnn])
def test_an_optimised_model_computes_what_it_did(build, tmp_path):
    proto, inputs = build()
    levels = [LEVELS.ORT_ENABLE_BASIC, LEVELS.ORT_ENABLE_EXTENDED]
    levels += [] if build is cnn else [LEVELS.ORT_ENABLE_ALL]
    fused = set()
    for level in levels:
        saved = optimised(proto, tmp_path, level)
        fused |= domains(saved)
        assert difference(saved, inputs) < 1e-5
    assert "com.microsoft" in fused


def test_a_model_laid_out_for_a_processor_says_so(tmp_path):
    proto, _ = cnn()
    saved = optimised(proto, tmp_path, LEVELS.ORT_ENABLE_ALL)
    if "com.microsoft.nchwc" not in domains(saved):
        pytest.skip("no layout of its own for this processor")
    with pytest.raises(OnnxError, match=r"(?s)nchwc.Conv.*save the model at ORT_ENABLE_EXTENDED"):
        load(saved.SerializeToString())


@pytest.mark.parametrize("build", [mlp, transformer, cnn])
@pytest.mark.parametrize("way", ["dynamic", "QOperator", "QDQ"])
def test_a_quantised_model_computes_what_it_did(build, way, tmp_path, monkeypatch):
    monkeypatch.setattr(logging.root, "level", logging.ERROR)
    proto, inputs = build()
    source, target = tmp_path / "model.onnx", tmp_path / "quantised.onnx"
    onnx.save(proto, source)
    if way == "dynamic":
        quantization.quantize_dynamic(str(source), str(target))
    else:
        form = getattr(quantization.QuantFormat, way)
        kinds = {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}
        quantization.quantize_static(str(source), str(target), Reader(proto, inputs), quant_format=form, **kinds)
    for level in (LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_EXTENDED):
        saved = optimised(str(target), tmp_path, level)
        assert difference(saved, inputs) < (0.02 if way == "QDQ" else 1e-5)  # a code of QLinearSoftmax may be the next


def test_all_that_is_not_known_is_named_at_once():
    nodes = [
        helper.make_node("Sampling", ["x"], ["a"], "one", domain="com.microsoft"),
        helper.make_node("LongformerAttention", ["a"], ["b"], "two", domain="com.microsoft"),
        helper.make_node("Gelu", ["b"], ["y"], "three", domain="com.microsoft", power=2),
    ]
    infos = [helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    data = helper.make_model(graph, opset_imports=imports(18)).SerializeToString()
    with pytest.raises(OnnxError) as caught:
        load(data)
    for word in ("3 nodes", "Sampling", "LongformerAttention", "'two'", "power"):
        assert word in str(caught.value)


def test_products_inside_attention_have_gradients():
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 4), (4, 12), (12,))]
    device = CPU.autodiff()
    tensors = [Tensor.from_data(x, device).require_grad() for x in arrays]
    y = find("com.microsoft", "Attention", 1)(*tensors, num_heads=2, unidirectional=1)
    g = rng.standard_normal(y.shape).astype(np.float32)
    grads = (y * Tensor.from_data(g, device)).sum().backward()
    twins = [torch.tensor(x, requires_grad=True) for x in arrays]
    q, k, v = ((twins[0] @ twins[1] + twins[2]).split(4, 2)[i].reshape(2, 3, 2, 2).transpose(1, 2) for i in range(3))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 3, 4)
    (want * torch.tensor(g)).sum().backward()
    np.testing.assert_allclose(y.into_data().values, want.detach().numpy(), rtol=1e-5, atol=1e-6)
    for tensor, twin in zip(tensors, twins, strict=True):
        np.testing.assert_allclose(tensor.grad(grads).into_data().values, twin.grad.numpy(), rtol=1e-4, atol=1e-5)


# -- without a kernel for CPUs ----------------------------------------------------------------------------------------
def _gelu(x):
    return torch.nn.functional.gelu(x)


def _last(x):
    return x.permute(0, 2, 3, 1)


def _first(x):
    return x.permute(0, 3, 1, 2)


def _group_norm(x, g, b):
    return _last(torch.nn.functional.silu(torch.nn.functional.group_norm(_first(x), 2, g, b, 1e-5)))


def _bucket(distance, *, bidirectional):
    """The bucket of T5 for the distance of a key from its query, of 8 buckets up to a distance of 16."""
    count, base = (4, 4 * (distance > 0)) if bidirectional else (8, 0)
    n = abs(distance) if bidirectional else max(-distance, 0)
    near = count // 2
    far = near + int(np.log(max(n, 1) / near) / np.log(16 / near) * (count - near))
    return base + (n if n < near else min(far, count - 1))


def _position_bias(table, rows, columns, **how):
    places = [[_bucket(j - i, **how) for j in range(int(columns))] for i in range(int(rows))]
    return table[torch.tensor(places)].permute(2, 0, 1)[None]


def _gated(q, qb, rel, w, b, eco):
    q = (q + qb).reshape(1, 3, 2, 4).transpose(1, 2)
    u, r = torch.sigmoid((q @ w + b).reshape(1, 2, 3, 2, 4).sum(-1)).chunk(2, dim=-1)
    return (u * (r * eco - 1.0) + 2.0) * rel


IMAGE = (2, 4, 3, 6)
CASES = {
    "BiasAdd": ([IMAGE, (6,), IMAGE], {}, lambda x, b, s: x + b + s),
    "BiasSplitGelu": ([(2, 3, 8), (8,)], {}, lambda x, b: (x + b)[..., :4] * _gelu((x + b)[..., 4:])),
    "BiasDropout": ([(2, 3), (3,), (2, 3)], {}, lambda x, b, r: x + b + r),
    "BiasSoftmax": (
        [(2, 3, 4, 5), (2, 1, 1, 5)],
        {"axis": 3, "is_inner_broadcast": 1},
        lambda x, b: torch.softmax(x + b, -1),
    ),
    "GemmFastGelu": (
        [(2, 3, 4), (4, 5), (5,)],
        {},
        lambda x, w, b: torch.nn.functional.gelu(x @ w + b, approximate="tanh"),
    ),
    "GroupNorm": ([IMAGE, (6,), (6,)], {"groups": 2, "activation": 1}, _group_norm),
    "SkipGroupNorm": (
        [IMAGE, (6,), (6,), (2, 6), (6,)],
        {"groups": 2, "activation": 1},
        lambda x, g, b, s, c: _group_norm(x + s[:, None, None] + c, g, b),
    ),
    "NhwcConv": (
        [IMAGE, (5, 3, 2, 6), (5,)],
        {"pads": (1, 1, 1, 1)},
        lambda x, w, b: _last(torch.nn.functional.conv2d(_first(x), _first(w), b, padding=1)),
    ),
    "NhwcFusedConv": (
        [IMAGE, (6, 1, 1, 6), None, IMAGE],
        {"activation": "Relu"},
        lambda x, w, _, z: torch.relu(_last(torch.nn.functional.conv2d(_first(x), _first(w))) + z),
    ),
    "RelativePositionBias": (
        [(8, 2), 5, 40],
        {"max_distance": 16, "is_bidirectional": 1},
        lambda t, r, c: _position_bias(t, r, c, bidirectional=True),
    ),
    "GatedRelativePositionBias": (
        [(1, 3, 8), (8,), (1, 2, 3, 3), (4, 8), (8,), (1, 2, 1, 1)],
        {"num_heads": 2},
        _gated,
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", CASES)
def test_operators_without_a_kernel_for_cpus(op):
    shapes, attributes, reference = CASES[op]
    rng = np.random.default_rng(len(op))
    arrays = [
        s if s is None else np.array(s) if isinstance(s, int) else rng.standard_normal(s).astype(np.float32)
        for s in shapes
    ]
    want = reference(*[None if x is None else torch.from_numpy(x) for x in arrays]).numpy()
    for device in (CPU, Device.ndarray()):
        inputs = [Tensor.from_data(x, device) if x is not None and x.ndim else x for x in arrays]
        got = find("com.microsoft", op, 1)(*inputs, **attributes).into_data().values
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_the_bias_of_positions_behind():
    table = np.random.default_rng(1).standard_normal((8, 2)).astype(np.float32)
    got = find("com.microsoft", "RelativePositionBias", 1)(
        Tensor.from_data(table, CPU), np.array(30), np.array(30), max_distance=16
    )
    want = _position_bias(torch.from_numpy(table), 30, 30, bidirectional=False)
    np.testing.assert_array_equal(got.into_data().values, want.numpy())


def test_a_mean_of_codes_is_a_code():
    codes = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    inputs = [Tensor.from_data(x, CPU) for x in (codes, np.float32(0.5), np.uint8(3), np.float32(0.25), np.uint8(7))]
    got = find("com.microsoft", "QLinearReduceMean", 1)(*inputs, axes=(1, -1), keepdims=0).into_data().values
    np.testing.assert_array_equal(got, np.rint((codes.astype(float) - 3).mean((1, 2)) * 0.5 / 0.25).astype(int) + 7)
