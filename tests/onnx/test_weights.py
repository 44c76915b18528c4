"""Tests which tensors of a file are parameters: those that were trained, each where it is read, and no others."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
import torch

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

from burn_torch import Device, Tensor
from burn_torch.module import GradientsParams
from burn_torch.onnx import load
from burn_torch.onnx.plan import plan_of
from burn_torch.onnx.reader import read_bytes
from burn_torch.onnx.source import source_of
from burn_torch.optim import SgdConfig

F, L = TensorProto.FLOAT, TensorProto.INT64


class Tokens(torch.nn.Module):
    """A class token before embedded tokens with learned positions: both far smaller than a literal may be."""

    def __init__(self):
        super().__init__()
        self.tok, self.pos = torch.nn.Embedding(30, 8), torch.nn.Embedding(64, 8)
        self.cls, self.out = torch.nn.Parameter(torch.randn(1, 1, 8)), torch.nn.Linear(8, 3)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        return self.out(torch.cat([self.cls.expand(ids.shape[0], -1, -1), x], 1))


def exported(module, *inputs, axes=None):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), inputs, file, input_names=["x"], dynamo=False, opset_version=17, dynamic_axes={"x": axes}
        )
    return file.getvalue()


def raw(nodes, weights, inputs=(("x", F, ["n", 4]),), outputs=("y",)):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*info) for info in inputs],
        [helper.make_tensor_value_info(name, F, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


def params(data):
    return {name: param.shape for name, param in load(data).named_params()}


def test_class_tokens_and_positions_are_parameters_and_train():
    torch.manual_seed(0)
    module = Tokens()
    ids = torch.randint(0, 30, (2, 5))
    device = Device.cpu().autodiff()
    model = load(exported(module, ids, axes={0: "batch", 1: "seq"}), device)
    assert sorted(param.shape for _, param in model.named_params()) == [(1, 1, 8), (3,), (8, 3), (30, 8), (64, 8)]
    for batch, seq in ((2, 5), (3, 9)):
        ids = torch.randint(0, 30, (batch, seq))
        y = model.forward(Tensor.from_data(ids.numpy(), device))
        np.testing.assert_allclose(y.into_data().values, module(ids).detach().numpy(), atol=1e-6)
    before = dict(model.named_params())
    gradients = GradientsParams.from_grads((y * y).sum().backward(), model)
    model, _ = SgdConfig().init().step(0.1, model, gradients)
    for name, param in model.named_params():
        assert not np.array_equal(param.val().into_data().array, before[name].val().into_data().array), name


def test_no_weight_is_written_digit_by_digit():
    text = source_of(plan_of(read_bytes(exported(Tokens(), torch.randint(0, 30, (2, 5)), axes={0: "batch", 1: "seq"}))))
    assert "np.float32" not in text
    assert max(text.count(",", i, i + 300) for i in range(0, len(text), 300)) < 30


def test_a_relative_bias_that_is_gathered_by_places_of_the_host_is_a_parameter():
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["seq"]),
        helper.make_node("Range", ["zero", "seq", "one"], ["places"]),
        helper.make_node("Gather", ["table", "places"], ["bias"]),
        helper.make_node("Add", ["x", "bias"], ["y"]),
    ]
    weights = {"table": np.arange(6, dtype=np.float32), "zero": np.array(0), "one": np.array(1)}
    data = raw(nodes, weights, [("x", F, ["n", "s"])])
    assert params(data) == {"table": (6,)}
    x = Tensor.zeros((2, 4), Device.cpu())
    assert load(data).forward(x).tolist() == [[0, 1, 2, 3]] * 2


def test_factors_of_sizes_are_no_parameters():
    """Scales from which the host works out a size stay numbers, whatever they are multiplied with."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["real"], to=F),
        helper.make_node("Mul", ["real", "factors"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["sizes"], to=L),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest"),
    ]
    data = raw(nodes, {"factors": np.array([1, 1, 2, 3], np.float32)}, [("x", F, ["n", 1, "h", "w"])])
    assert params(data) == {}
    assert load(data).forward(Tensor.zeros((2, 1, 3, 3), Device.cpu())).shape == (2, 1, 6, 9)


def test_ones_and_zeros_that_the_exporter_made_for_norms_are_not_trained():
    norms = torch.nn.Sequential(torch.nn.GroupNorm(2, 4), torch.nn.GroupNorm(2, 4), torch.nn.InstanceNorm2d(4))
    model = load(exported(norms, torch.randn(2, 4, 3, 3), axes={0: "batch"}))
    assert len(list(model.named_params())) == 4
    by_hand = [helper.make_node("InstanceNormalization", [f"h{i}", "val_1", "val_2"], [f"h{i + 1}"]) for i in range(3)]
    weights = {"val_1": np.ones(4, np.float32), "val_2": np.zeros(4, np.float32)}
    assert params(raw(by_hand, weights, [("h0", F, [2, 4, 3])], ["h3"])) == {}


def test_norms_that_share_ones_because_they_are_fresh_train_each_for_itself():
    nodes = [
        helper.make_node("LayerNormalization", [f"h{i}", "a.norm.weight", "a.norm.bias"], [f"h{i + 1}"], f"norm{i}")
        for i in range(3)
    ]
    weights = {"a.norm.weight": np.ones(4, np.float32), "a.norm.bias": np.zeros(4, np.float32)}
    data = raw(nodes, weights, [("h0", F, [2, 4])], ["h3"])
    assert list(params(data)) == [
        "a_norm_weight", "a_norm_bias", "norm1_scale", "norm1_bias", "norm2_scale", "norm2_bias",
    ]  # fmt: skip
    weights["a.norm.weight"] = np.arange(1, 5, dtype=np.float32)  # trained, so one weight where one is read
    assert list(params(raw(nodes, weights, [("h0", F, [2, 4])], ["h3"]))) == [
        "a_norm_weight", "a_norm_bias", "norm1_bias", "norm2_bias",
    ]  # fmt: skip


def test_tied_weights_stay_one_parameter():
    nodes = [
        helper.make_node("Gather", ["embedding", "ids"], ["h"]),
        helper.make_node("Gemm", ["h", "embedding"], ["y"], transB=1),
    ]
    weights = {"embedding": np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)}
    assert params(raw(nodes, weights, [("ids", L, ["n"])])) == {"embedding": (5, 4)}


def test_masks_and_initial_states_and_scalars():
    """An infinite mask and zeros to begin with are no weights; a number is one where its name is a path."""
    nodes = [
        helper.make_node("Add", ["x", "attention.mask"], ["a"]),
        helper.make_node("Mul", ["a", "head.temperature"], ["b"]),
        helper.make_node("Mul", ["b", "half"], ["y"]),
    ]
    weights = {
        "attention.mask": np.array([0, -np.inf, 0, -np.inf], np.float32),
        "head.temperature": np.array(2, np.float32),
        "half": np.array(0.5, np.float32),
    }
    assert params(raw(nodes, weights)) == {"head_temperature": ()}
    rng = np.random.default_rng(0)
    step = helper.make_node("RNN", ["x", "W", "R", "", "", "val_3"], ["y"], hidden_size=3)
    weights = {"W": rng.standard_normal((1, 3, 4)), "R": rng.standard_normal((1, 3, 3)), "val_3": np.zeros((1, 2, 3))}
    data = raw([step], {name: x.astype(np.float32) for name, x in weights.items()}, [("x", F, [5, 2, 4])])
    assert set(params(data).values()) == {(1, 3, 4), (1, 3, 3)}


@pytest.mark.parametrize("op", ["Expand", "Concat", "Slice", "Tile", "Transpose", "Identity", "Where"])
def test_a_small_weight_is_a_parameter_whatever_reads_it(op):
    first = {
        "Expand": helper.make_node("Expand", ["w", "size"], ["h"]),
        "Concat": helper.make_node("Concat", ["w", "x"], ["h"], axis=0),
        "Slice": helper.make_node("Slice", ["w", "size", "size"], ["h"]),
        "Tile": helper.make_node("Tile", ["w", "size"], ["h"]),
        "Transpose": helper.make_node("Transpose", ["w"], ["h"]),
        "Identity": helper.make_node("Identity", ["w"], ["h"]),
        "Where": helper.make_node("Where", ["yes", "w", "x"], ["h"]),
    }[op]
    nodes = [helper.make_node("Shape", ["x"], ["size"]), first, helper.make_node("Identity", ["h"], ["y"])]
    weights = {"w": np.random.default_rng(1).standard_normal((1, 4)).astype(np.float32), "yes": np.array(True)}
    params = list(load(raw(nodes, weights)).named_params())
    assert len(params) == 1, params
