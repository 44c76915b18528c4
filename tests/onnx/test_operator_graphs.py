"""Random models of plain operators: the values of onnxruntime, loaded, on numpy, as source, compiled and fused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper

from burn_torch import BurnTorchError, Device, OnnxError, Tensor, TraceError, compile
from burn_torch.onnx import load
from burn_torch.onnx import operators as op
from tests.onnx import layer_draws, microsoft_draws, operator_draws
from tests.onnx.operator_graphs import DRAWS, MICROSOFT, ONNX_TYPES, OperatorGraph, compute
from tests.onnx.random_models import SEED
from tests.onnx.test_control_graphs import written

CPU = Device.cpu()
assert operator_draws.draws is layer_draws.draws is microsoft_draws.draws, "they fill DRAWS"


def close(got, want):
    """Equal types, shapes and whole numbers; floats within rounding of the largest value."""
    if got.dtype != want.dtype or got.shape != want.shape or not want.size:
        return got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind != "f":
        return bool((got == want).all())
    finite = np.abs(want[np.isfinite(want)])
    eps = max(200 * float(np.finfo(want.dtype).eps), 2e-5)
    scale = max(float(finite.max()) if finite.size else 0.0, 1e-3)
    return np.allclose(got, want, rtol=eps, atol=eps * scale, equal_nan=True)


def results(model, inputs, device, run=lambda model, *xs: model.forward(*xs)):
    outputs = run(model, *[Tensor.from_data(x, device) for x in inputs.values()])
    return [y.into_data().values for y in (outputs if isinstance(outputs, tuple) else (outputs,))]


def in_three_parts(error):
    return all(f"\n  {word}:" in str(error) for word in ("given", "expected", "mend"))


def disagreements(drawn, folder, *, fuse=False):
    """Returns what differs from onnxruntime for one random model, and how many ways ran it."""
    data, wrong, ran = drawn.proto.SerializeToString(), [], 0
    ways = {
        "loaded": lambda: results(load(data), drawn.feeds(), CPU),
        "numpy": lambda: results(load(data, Device.ndarray()), drawn.feeds(), Device.ndarray()),
        "source": lambda: results(written(data, folder), drawn.feeds(), CPU),
        "compiled": lambda: results(load(data), drawn.feeds(), CPU, compile(lambda m, *xs: m.forward(*xs))),
    }
    if fuse:
        ways["fused"] = lambda: results(
            load(data), drawn.feeds(), CPU, compile(lambda m, *xs: m.forward(*xs), fuse=True)
        )
    for way, run in ways.items():
        try:
            outputs = run()
        except TraceError:  # what depends on data cannot be compiled
            continue
        except BurnTorchError as error:
            if in_three_parts(error):
                continue
            raise
        ran += 1
        for name, got in zip(drawn.outputs, outputs, strict=True):
            want = drawn.values[name]
            if not close(got, want):
                wrong.append(f"{way}, {name}: {got.dtype} {got.tolist()} instead of {want.dtype} {want.tolist()}")
                break
    return wrong, ran


def run_models(count, folder, *, fuse=False):
    print(f"random models of plain operators: SEED={SEED}")
    names, runs, models = sorted(DRAWS), 0, 0
    for seed in range(SEED, SEED + count):
        drawn = OperatorGraph(seed, names[seed % len(names)])
        if not drawn.made:
            continue
        wrong, ran = disagreements(drawn, folder, fuse=fuse)
        assert not wrong, f"SEED={seed}: " + "\n".join(wrong) + "\n" + drawn.text()
        runs, models = runs + ran, models + 1
    assert models > 0.95 * count - 2  # of few, a draw or two that nobody can make are more than one in twenty
    assert runs > 3 * models


def test_random_models(tmp_path):
    run_models(15, tmp_path)


@pytest.mark.slow
def test_two_thousand_random_models(tmp_path):
    run_models(2000, tmp_path)


@pytest.mark.slow
def test_two_hundred_random_models_fused(tmp_path):
    run_models(200, tmp_path, fuse=True)


def test_every_operator_is_drawn_or_tried_elsewhere():
    from burn_torch.onnx.operators.registry import known

    elsewhere = {
        *("If", "Loop", "Scan", "Constant", "Optional", "OptionalGetElement", "OptionalHasElement"),
        *("SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength"),
        *("ConcatFromSequence", "SplitToSequence", "Bernoulli", "Dropout", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike", "BitCast", "CumProd", "TensorScatter"),
    }
    assert set(known()) - set(DRAWS) - elsewhere == set()
    without_kernel = {  # of CPUs: tests/onnx/test_microsoft.py
        *("BiasAdd", "BiasDropout", "BiasSoftmax", "BiasSplitGelu", "GatedRelativePositionBias", "GemmFastGelu"),
        *("GroupNorm", "NhwcConv", "NhwcFusedConv", "QLinearReduceMean", "RelativePositionBias", "SkipGroupNorm"),
    }
    assert {MICROSOFT + op for op in set(known(MICROSOFT[:-1])) - without_kernel} - set(DRAWS) == set()


# -- the forms that were wrong, one by one -------------------------------------------------------------------------
def check(node, feeds, opset, *, constant=()):
    """One node with some inputs as weights of the file: what onnxruntime computes."""
    want = compute(node, feeds, opset)
    inputs = [
        helper.make_tensor_value_info(n, ONNX_TYPES[x.dtype], x.shape) for n, x in feeds.items() if n not in constant
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    weights = [numpy_helper.from_array(feeds[name], name) for name in constant]
    graph = helper.make_graph([node], "one", inputs, outputs, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    fed = {name: x for name, x in feeds.items() if name not in constant}
    got = results(load(proto.SerializeToString()), fed, CPU)
    for one, other in zip(got, want, strict=True):
        assert close(one, other), f"{one.dtype} {one.tolist()} instead of {other.dtype} {other.tolist()}"
    return got


@pytest.mark.parametrize(("opset", "more"), [(7, {}), (13, {}), (18, {"num_outputs": 2})])
def test_split_counts_parts_that_nobody_reads(opset, more):
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    named = helper.make_node("Split", ["x"], ["a", "b"], **more)
    graph = helper.make_graph(
        [helper.make_node("Split", ["x"], ["a", ""], **more)],
        "split",
        [helper.make_tensor_value_info("x", 1, [4, 3])],
        [helper.make_empty_tensor_value_info("a")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    (got,) = results(load(proto.SerializeToString()), {"x": x}, CPU)
    np.testing.assert_array_equal(got, compute(named, {"x": x}, opset)[0])


@pytest.mark.parametrize("base", [np.int32(3), np.int64(-2), np.float64(1.5)])
def test_a_power_of_a_constant_has_its_type(base):
    feeds = {"x": np.array(base), "y": np.array([1.5, 2.0], np.float32)}
    (got,) = check(helper.make_node("Pow", ["x", "y"], ["z"]), feeds, 17, constant=["x"])
    assert got.dtype == base.dtype


@pytest.mark.parametrize("constant", [[], ["n"]])
@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_the_size_of_a_window_may_be_a_constant(name, constant):
    check(helper.make_node(name, ["n"], ["y"], periodic=0), {"n": np.array(6)}, 17, constant=constant)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("operator", [op.scatter_elements, op.scatter_nd])
def test_truths_are_joined(operator, reduction):
    at = np.array([0, 2, 2, 1], np.int64)
    inputs = [[True, False, True, False], at if operator is op.scatter_elements else at[:, None]]
    inputs.append([False, False, True, True])
    y = operator(*[Tensor.from_data(np.array(x), CPU) for x in inputs], reduction=reduction)
    assert y.tolist() == ([True, True, True, False] if reduction in ("add", "max") else [False] * 4)


@pytest.mark.parametrize("opset", [18, 20])
@pytest.mark.parametrize("inverse", [0, 1])
def test_a_fourier_transform_of_one_row(opset, inverse):
    x = np.array([[1, 2], [0.5, -1], [3, 0]], np.float32)
    feeds = {"x": x, "axis": np.array(0)} if opset == 20 else {"x": x}
    more = {} if opset == 20 else {"axis": 0}
    names = ["x", "", "axis"] if opset == 20 else ["x"]
    check(helper.make_node("DFT", names, ["y"], inverse=inverse, **more), feeds, opset)


def test_a_transposed_convolution_with_a_larger_output_adds_at_the_end():
    x, w = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4), np.ones((1, 1, 1, 1), np.float32)
    for shape in ([2, 12], [4, 11], [3, 10]):
        node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 3], output_shape=shape)
        check(node, {"x": x, "w": w}, 11)


def test_the_clip_of_an_lstm_leaves_the_cell():
    rng = np.random.default_rng(0)
    feeds = {"x": 2 * rng.standard_normal((4, 2, 3)), "w": rng.standard_normal((1, 8, 3))}
    feeds |= {"r": rng.standard_normal((1, 8, 2)), "c": 2 * np.ones((1, 2, 2))}
    feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "", "c"], ["y", "h", "last"], hidden_size=2, clip=0.3)
    check(node, feeds, 14)


def test_the_scale_of_zeros_is_one():
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    for values in ([0.0, 0.0], [1.0, 0.0], [-3.0, 0.0]):
        check(node, {"x": np.array(values, np.float32)}, 11)


@pytest.mark.parametrize("scale", [0.1, 0.3, 0.6, 1.1, 2.0])
def test_the_nearest_element_is_that_of_float32(scale):
    """Also of opset 10, where an axis that shrinks goes on to the next element."""
    x = np.arange(57, dtype=np.float32).reshape(1, 1, 57)
    factors = np.array([1, 1, scale], np.float32)
    check(helper.make_node("Resize", ["x", "s"], ["y"]), {"x": x, "s": factors}, 10, constant=["s"])
    for way in ("asymmetric", "half_pixel"):
        for nearest in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
            if (way, nearest, scale) == ("half_pixel", "round_prefer_ceil", 0.3):
                continue  # a product and a sum in one step
            more = {"coordinate_transformation_mode": way, "nearest_mode": nearest}
            node = helper.make_node("Resize", ["x", "", "s"], ["y"], **more)
            check(node, {"x": x, "s": factors}, 13, constant=["s"])


def test_a_row_of_one_is_resized_from_its_first_element():
    x = np.array([[[[0.375, -0.5], [1.625, 1.375], [-0.5, 3.0]]]], np.float32)
    factors = np.array([1, 1, 0.6, 1], np.float32)
    more = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], **more)
    check(node, {"x": x, "s": factors}, 15, constant=["s"])


def test_the_states_of_samples_first_are_those_of_steps_first():
    """`layout` 1, which onnxruntime does not compute."""
    rng = np.random.default_rng(1)
    x = Tensor.from_data(rng.standard_normal((5, 2, 3)).astype(np.float32), CPU)
    lens = np.array([5, 2], np.int32)
    for operator, gates, states in ((op.lstm, 4, 2), (op.gru, 3, 1), (op.rnn, 1, 1)):
        w, r = (Tensor.from_data(rng.standard_normal((2, gates * 4, n)).astype(np.float32), CPU) for n in (3, 4))
        first = [Tensor.from_data(rng.standard_normal((2, 2, 4)).astype(np.float32), CPU) for _ in range(states)]
        common = {"direction": "bidirectional", "outputs": states + 1}
        want = operator(x, w, r, None, lens, *first, **common)
        turned = [state.permute(1, 0, 2) for state in first]
        got = operator(x.permute(1, 0, 2), w, r, None, lens, *turned, layout=1, **common)
        assert np.array_equal(got[0].permute(1, 2, 0, 3).into_data().values, want[0].into_data().values)
        for one, other in zip(got[1:], want[1:], strict=True):
            assert np.array_equal(one.permute(1, 0, 2).into_data().values, other.into_data().values)


def test_a_recurrent_model_runs_at_every_length():
    rng = np.random.default_rng(2)
    weights = [
        numpy_helper.from_array(rng.standard_normal((2, 6, n)).astype(np.float32), k) for k, n in (("w", 3), ("r", 2))
    ]
    node = helper.make_node("GRU", ["x", "w", "r", "", "lens"], ["y", "last"], hidden_size=2, direction="bidirectional")
    inputs = [helper.make_tensor_value_info("x", 1, ["n", "b", 3]), helper.make_tensor_value_info("lens", 6, ["b"])]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("y", "last")]
    graph = helper.make_graph([node], "gru", inputs, outputs, weights)
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)]).SerializeToString())
    stored = {value.name: numpy_helper.to_array(value) for value in weights}
    for length, lens in ((1, [1]), (6, [6, 2, 4]), (3, [3, 1])):
        x = rng.standard_normal((length, len(lens), 3)).astype(np.float32)
        feeds = {"x": x, "lens": np.array(lens, np.int32)}
        for got, want in zip(results(model, feeds, CPU), compute(node, {**feeds, **stored}, 14), strict=True):
            assert close(got, want)
    with pytest.raises(OnnxError, match="missing lens"):
        model.forward(Tensor.from_data(x, CPU))


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_volumes_are_sampled_beyond_reflecting_walls(mode, align_corners):
    rng = np.random.default_rng(3)
    for sizes in ((3, 1, 4), (2, 2, 2)):
        feeds = {"x": rng.standard_normal((2, 2, *sizes)), "g": rng.uniform(-3.7, 3.7, (2, 2, 3, 2, 3))}
        feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
        more = {"mode": mode, "padding_mode": "reflection", "align_corners": align_corners}
        check(helper.make_node("GridSample", ["x", "g"], ["y"], **more), feeds, 20)


def test_the_last_state_of_a_sample_without_steps_is_zero():
    rng = np.random.default_rng(4)
    shapes = {"x": (3, 2, 3), "w": (1, 8, 3), "r": (1, 8, 2), "lens": (), "h": (1, 2, 2), "c": (1, 2, 2)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds["lens"] = np.array([0, 2], np.int32)
    node = helper.make_node("LSTM", ["x", "w", "r", "", "lens", "h", "c"], ["y", "last", "cell"], hidden_size=2)
    check(node, feeds, 14)
