"""Models of QuantizeLinear and DequantizeLinear pairs train: gradients go straight through, codes stay codes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import torch
from onnx import helper, numpy_helper

from burn_torch import Device, Tensor
from burn_torch.core.quantization import QuantLevel, QuantScheme, QuantValue
from burn_torch.module import GradientsParams
from burn_torch.onnx import export, load
from burn_torch.optim import SgdConfig
from burn_torch.tensor.quantization import QuantizationParameters, compute_q_params, compute_range, fake_quantize
from tests.onnx.random_models import SEED, session_of
from tests.onnx.small_models import info

TRAINED = Device.cpu().autodiff()


def pair(nodes, name, source, scale, zero, axis=None):
    """QuantizeLinear and DequantizeLinear, or the second alone where the source is codes."""
    more = {} if axis is None else {"axis": axis}
    if source != f"{name}.codes":
        nodes.append(helper.make_node("QuantizeLinear", [source, scale, zero], [f"{name}.codes"], **more))
    nodes.append(helper.make_node("DequantizeLinear", [f"{name}.codes", scale, zero], [f"{name}.floats"], **more))
    return f"{name}.floats"


def drawn_model(rng):
    """x -> Q, DQ -> MatMul with weights that are codes -> Q, DQ; scales of all, or of each column."""
    n, k, m = (int(rng.integers(2, 6)) for _ in range(3))
    kind, each = (np.int8, np.uint8)[rng.integers(2)], bool(rng.integers(2))
    low = 0 if kind is np.uint8 else -100
    shape = (m,) if each else ()
    weights = {
        "w.codes": rng.integers(low, 100, (k, m)).astype(kind),
        "ws": rng.uniform(0.01, 0.03, shape).astype(np.float32),
        "wz": np.full(shape, int(rng.integers(0, 5)), kind),
        "xs": np.float32(0.02),
        "xz": np.uint8(100),
        "ys": np.float32(0.05),
        "yz": np.uint8(120),
        "b": rng.standard_normal(m).astype(np.float32),
    }
    nodes: list = []
    x = pair(nodes, "x", "x", "xs", "xz")
    w = pair(nodes, "w", "w.codes", "ws", "wz", 1 if each else None)
    nodes.append(helper.make_node("MatMul", [x, w], ["product"]))
    nodes.append(helper.make_node("Add", ["product", "b"], ["sum"]))
    y = pair(nodes, "y", "sum", "ys", "yz")
    nodes.append(helper.make_node("Identity", [y], ["out"]))
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "qdq", [info("x", ["n", k])], [info("out", ["n", m])], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return proto, weights, (3 * rng.standard_normal((n, k))).astype(np.float32)


def twin(weights, x):
    """The same in torch's own fake quantisation; its inputs and its output."""
    x = torch.tensor(x, requires_grad=True)
    codes, scale, zero = (torch.tensor(weights[name].astype(np.float32)) for name in ("w.codes", "ws", "wz"))
    w = ((codes - zero) * scale).requires_grad_()
    b = torch.tensor(weights["b"], requires_grad=True)
    fake = torch.fake_quantize_per_tensor_affine
    low, high = (0, 255) if weights["w.codes"].dtype == np.uint8 else (-128, 127)
    if weights["ws"].ndim:
        own = torch.fake_quantize_per_channel_affine(w, scale, zero.int(), 1, low, high)
    else:
        own = fake(w, float(scale), int(zero), low, high)
    y = fake(fake(x, 0.02, 100, 0, 255) @ own + b, float(weights["ys"]), 120, 0, 255)
    return (x, w, b), y


@pytest.mark.parametrize("number", range(4))
def test_gradients_go_straight_through(number):
    rng = np.random.default_rng(SEED + number)
    proto, weights, x = drawn_model(rng)
    model = load(proto.SerializeToString(), TRAINED)
    inputs = Tensor.from_data(x, TRAINED).require_grad()
    y = model.forward(inputs)
    (want,) = session_of(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(y.into_data().values, want, atol=1e-6, err_msg=f"SEED={SEED + number}")
    g = rng.standard_normal(want.shape).astype(np.float32)
    grads = (y * Tensor.from_data(g, TRAINED)).sum().backward()
    (tx, tw, tb), ty = twin(weights, x)
    (ty * torch.tensor(g)).sum().backward()
    params = dict(model.named_params())
    assert sorted(param.shape for param in params.values()) == sorted([tuple(tw.shape), tuple(tb.shape)])
    for got, other in ((inputs, tx), *((p.val(), tw if p.val().ndim == 2 else tb) for p in params.values())):
        np.testing.assert_allclose(got.grad(grads).into_data().values, other.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_quantised_model_learns_and_goes_out_again(tmp_path):
    rng = np.random.default_rng(0)
    proto, weights, _ = drawn_model(rng)
    model = load(proto.SerializeToString(), TRAINED)
    x = rng.uniform(-1.5, 1.5, (64, weights["w.codes"].shape[0])).astype(np.float32)
    wanted = np.tanh(x @ rng.standard_normal((x.shape[1], weights["b"].size)).astype(np.float32))
    inputs, target = (Tensor.from_data(value, TRAINED) for value in (x, wanted))
    optimizer, losses = SgdConfig().init(), []
    for _ in range(60):
        error = model.forward(inputs) - target
        loss = (error * error).mean()
        losses.append(float(loss.into_scalar()))
        grads = GradientsParams.from_grads(loss.backward(), model)
        model, optimizer = optimizer.step(0.1, model, grads)
    assert losses[-1] < 0.5 * losses[0]
    path = tmp_path / "tuned.onnx"
    report = export(model, inputs, path, input_names=["x"], dynamic_batch=True)
    assert report.operators["QuantizeLinear"] == report.operators["DequantizeLinear"] == 3
    (got,) = session_of(path.read_bytes()).run(None, {"x": x})
    np.testing.assert_allclose(got, model.forward(inputs).into_data().values, atol=1e-5)


def test_without_gradients_weights_are_worked_out_once():
    proto, weights, x = drawn_model(np.random.default_rng(3))
    model = load(proto.SerializeToString())
    operators = [step.entry.op for step in model.plan.steps]
    assert operators.count("QuantizeDequantizeLinear") == 2  # of x and of y
    stored = next(p.val().into_data().values for _, p in model.named_params() if p.val().ndim == 2)
    floats = (weights["w.codes"].astype(np.float32) - weights["wz"]) * weights["ws"]
    np.testing.assert_array_equal(stored, floats)
    (want,) = session_of(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(model.forward(Tensor.from_data(x, Device.cpu())).into_data().values, want, atol=1e-6)


def test_other_scales_are_no_pair():
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "a", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "b", "z"], ["y"]),
    ]
    constants = {"a": np.float32(0.5), "b": np.float32(0.25), "z": np.uint8(3)}
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "apart", [info("x", [3])], [info("y", [3])], tensors)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    x = np.array([0.7, 2.0, -9.0], np.float32)
    y = load(proto.SerializeToString()).forward(Tensor.from_data(x, Device.cpu())).into_data().values
    (want,) = session_of(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(y, want)
    assert not np.array_equal(y, x)
    assert onnx.checker.check_model(proto) is None


@pytest.mark.parametrize("number", range(4))
def test_fake_quantisation_goes_out_as_a_pair(number, tmp_path):
    """All codes, or those from a lowest to a largest one; one scale, or one of each channel."""
    rng = np.random.default_rng(SEED + number)
    value = (QuantValue.Q8S, QuantValue.Q8F, QuantValue.Q4S)[rng.integers(3)]
    level = QuantLevel.per_channel(int(rng.integers(0, 2))) if rng.integers(2) else QuantLevel.per_tensor()
    scheme = QuantScheme(value, level)
    x = Tensor.from_data(rng.standard_normal((4, 6)).astype(np.float32) * 3, Device.cpu())
    params = compute_q_params(scheme, compute_range(scheme, x * 0.4))  # some numbers lie beyond
    report = export(
        lambda x, scales: fake_quantize(x, scheme, QuantizationParameters(scales)),
        (x, params.scales),
        tmp_path / "q.onnx",
    )
    assert report.operators["QuantizeLinear"] == report.operators["DequantizeLinear"] == 1, f"SEED={SEED + number}"
    assert report.error == 0
