"""export: names, dynamic axes, weights, what is refused, and that a file is whole or not there."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

from burn_torch import ArgumentError, Device, Module, OnnxError, Param, Tensor, nn, ops
from burn_torch.cli.recipes.mnist import RECIPE as MNIST
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArtifactError, TraceError
from burn_torch.module.scalar import Scalar
from burn_torch.onnx import Cannot, Wire, export, load, row
from burn_torch.onnx.exporting import conversion

CPU = Device.cpu()
TRAINING = Device.cpu().autodiff()

compared = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime, which computes what was written, is absent"
)


def floats(*shape, seed=0, device=CPU):
    return Tensor.from_data(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), device)


def whole(*values):
    return Tensor.from_data(np.array(values), CPU)


def values(x):
    return np.asarray(x.into_data().values)


def session(path):
    return pytest.importorskip("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])


def shapes(infos):
    return {i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in infos}


def operators(path):
    return [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]


class Net(Module):
    """Two layers, one of them used twice."""

    first: nn.Linear
    second: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        return self.second.forward(self.second.forward(self.first.forward(x).tanh()))

    def hidden(self, x: Tensor) -> Tensor:
        return self.first.forward(x)


def net(device=CPU):
    return Net(nn.LinearConfig(6, 4).init(device), nn.LinearConfig(4, 4).init(device))


# -- names and structures ------------------------------------------------------------------------------------------
def test_names_are_those_of_parameters_modules_and_results(tmp_path):
    report = export(net(), floats(3, 6), tmp_path / "m.onnx")
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert (report.inputs, report.outputs) == (("x",), ("output",))
    assert {tensor.name for tensor in graph.initializer} == {
        "first.weight", "first.bias", "second.weight", "second.bias"
    }  # fmt: skip
    assert [node.name for node in graph.node] == ["first.Gemm", "Tanh", "second.Gemm", "second.Gemm_2"]
    assert shapes(graph.input) == {"x": [3, 6]}
    assert shapes(graph.output) == {"output": [3, 4]}


def test_given_names_are_taken(tmp_path):
    export(net(), floats(3, 6), tmp_path / "m.onnx", input_names=["image"], output_names=["logits"])
    model = load(tmp_path / "m.onnx")
    assert [i.name for i in onnx.load(tmp_path / "m.onnx").graph.output] == ["logits"]
    assert np.abs(values(model.forward(image=floats(3, 6)))).max() > 0


@dataclass
class Pair:
    left: Tensor
    right: Tensor


def test_containers_are_several_inputs_and_outputs(tmp_path):
    def both(pair, more):
        return {"sum": pair.left + pair.right, "parts": (more["mask"], pair.left * 2.0)}

    example = (Pair(floats(2, 3), floats(2, 3, seed=1)), {"mask": floats(4)})
    report = export(both, example, tmp_path / "m.onnx")
    assert report.inputs == ("pair.left", "pair.right", "more.mask")
    assert report.outputs == ("sum", "parts.0", "parts.1")
    arrays = [values(example[0].left), values(example[0].right), values(example[1]["mask"])]
    outputs = session(tmp_path / "m.onnx").run(None, dict(zip(report.inputs, arrays, strict=True)))
    assert np.array_equal(outputs[0], values(example[0].left + example[0].right))
    assert np.array_equal(outputs[1], values(example[1]["mask"]))
    assert np.array_equal(outputs[2], 2 * values(example[0].left))


@compared
def test_a_tuple_of_results_is_numbered(tmp_path):
    report = export(lambda x: (x, x + 1.0, x), floats(2), tmp_path / "m.onnx")
    assert report.outputs == ("output_0", "output_1", "output_2")
    assert operators(tmp_path / "m.onnx").count("Identity") == 2
    assert report.error == 0.0


def test_an_input_that_nothing_reads_stays_an_input(tmp_path):
    report = export(lambda x, y: x * 2.0, (floats(2), floats(3)), tmp_path / "m.onnx")
    assert report.inputs == ("x", "y")


def test_numbers_and_texts_among_the_inputs_are_compiled_in(tmp_path):
    def scaled(x, factor, mode):
        return x * factor if mode == "up" else x / factor

    report = export(scaled, (floats(2), 3.0, "up"), tmp_path / "m.onnx")
    assert report.inputs == ("x",)
    assert operators(tmp_path / "m.onnx") == ["Mul"]


@compared
def test_numbers_of_a_module_are_constants(tmp_path):
    class Scaled(Module):
        weight: Param
        factor: Scalar

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight.val() * (self.factor + 1.0)

    layer = Scaled(Param.from_tensor(floats(3)), 2.0)
    report = export(layer, floats(2, 3, seed=1), tmp_path / "m.onnx")
    assert report.inputs == ("x",)
    assert report.error <= 1e-6


# -- inference ---------------------------------------------------------------------------------------------------
@compared
def test_a_module_in_training_is_exported_as_it_infers(tmp_path):
    class Noisy(Module):
        norm: nn.BatchNorm
        drop: nn.Dropout

        def forward(self, x: Tensor) -> Tensor:
            return self.drop.forward(self.norm.forward(x))

    layer = Noisy(nn.BatchNormConfig(3).init(TRAINING), nn.DropoutConfig(0.5).init())
    for i in range(3):
        layer.forward(floats(8, 3, seed=i, device=TRAINING))
    report = export(layer, floats(4, 3, seed=9, device=TRAINING), tmp_path / "m.onnx", dynamic_batch=True)
    assert report.operators == {"BatchNormalization": 1}
    assert report.error <= 1e-6
    assert {t.name for t in onnx.load(tmp_path / "m.onnx").graph.initializer} >= {"norm.running_mean", "norm.gamma"}


def test_a_method_and_a_function_of_modules(tmp_path):
    model = net(TRAINING)
    export(model.hidden, floats(3, 6), tmp_path / "a.onnx")
    export(lambda model, x: model.hidden(x), (model, floats(3, 6)), tmp_path / "b.onnx")
    for name in ("a", "b"):
        graph = onnx.load(tmp_path / f"{name}.onnx").graph
        assert {tensor.name for tensor in graph.initializer} == {"first.weight", "first.bias"}


def test_captures(tmp_path):
    scale, model = floats(3), net()
    export(lambda x: x * scale, floats(2, 3), tmp_path / "m.onnx", captures=[scale])
    with pytest.raises(TraceError, match="not among its arguments"):
        export(lambda x: x * scale, floats(2, 3), tmp_path / "m.onnx")
    training = net(TRAINING)
    with pytest.raises(ArgumentError, match=r"a captured module would train\n(.*\n)*.*capture model.valid\(\)"):
        export(lambda x: training.forward(x), floats(2, 6), tmp_path / "m.onnx", captures=[training])
    export(lambda x: model.forward(x), floats(2, 6), tmp_path / "m.onnx", captures=[model])


# -- weights -----------------------------------------------------------------------------------------------------
def test_shared_weights_are_stored_once(tmp_path):
    class Tied(Module):
        embedding: nn.Embedding
        bias: Param

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embedding.forward(tokens)
            return x.matmul(self.embedding.weight.val().transpose().unsqueeze()) + self.bias.val()

    class Twice(Module):
        a: nn.Linear
        b: nn.Linear

        def forward(self, x: Tensor) -> Tensor:
            return self.b.forward(self.a.forward(x))

    layer = Tied(nn.EmbeddingConfig(7, 5).init(CPU), Param.from_tensor(floats(7)))
    report = export(layer, whole([1, 2, 3]), tmp_path / "m.onnx")
    stored = [t.name for t in onnx.load(tmp_path / "m.onnx").graph.initializer if t.dims]
    assert stored.count("embedding.weight") == 1
    assert report.weight_bytes < 4 * (7 * 5 + 7) + 100
    one = nn.LinearConfig(4, 4).init(CPU)
    export(Twice(one, one), floats(2, 4), tmp_path / "m.onnx")
    assert {t.name for t in onnx.load(tmp_path / "m.onnx").graph.initializer} == {"a.weight", "a.bias"}


@compared
def test_large_weights_lie_in_a_file_beside_the_model(tmp_path):
    layer = nn.LinearConfig(64, 32).init(CPU)
    report = export(layer, floats(2, 64), tmp_path / "m.onnx", external_bytes=1000)
    assert report.data_path is not None
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "m.onnx", report.data_path])
    assert report.data_path.stat().st_size == 64 * 32 * 4  # the bias is small, and stays in the model
    assert (tmp_path / "m.onnx").stat().st_size < 2000
    assert report.comparisons
    again = load(tmp_path / "m.onnx").forward(floats(2, 64))
    assert np.array_equal(values(again), values(layer.forward(floats(2, 64))))
    first = report.data_path
    other = export(nn.LinearConfig(64, 32).init(CPU), floats(2, 64), tmp_path / "m.onnx", external_bytes=1000)
    assert other.data_path != first
    assert not first.exists()
    inside = export(layer, floats(2, 64), tmp_path / "m.onnx")
    assert inside.data_path is None
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


# -- the file ----------------------------------------------------------------------------------------------------
def test_metadata_producer_and_versions(tmp_path):
    from burn_torch.version import __version__

    export(net(), floats(3, 6), tmp_path / "m.onnx", metadata={"classes": "a,b"}, opset=17)
    proto = onnx.load(tmp_path / "m.onnx")
    assert {entry.key: entry.value for entry in proto.metadata_props} == {"classes": "a,b"}
    assert (proto.producer_name, proto.producer_version) == ("burn_torch", __version__)
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 17)]
    assert proto.ir_version == 8
    assert proto.graph.name == "Net"


@pytest.mark.parametrize("external", [1, 1 << 40])
def test_after_an_error_the_file_is_as_it_was(external, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"before")

    def refuse(*args):
        raise OnnxError("no")

    monkeypatch.setattr(conversion, "checked", refuse)
    with pytest.raises(OnnxError, match="no"):
        export(nn.LinearConfig(64, 32).init(CPU), floats(2, 64), path, external_bytes=external)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    assert path.read_bytes() == b"before"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ArtifactError, match=r"cannot be written\n  given: .*none/m.onnx.*\n.*\n.*choose another path"):
        export(net(), floats(3, 6), tmp_path / "none" / "m.onnx")


def test_a_function_that_computes_another_thing_each_time_is_noticed(tmp_path):
    pytest.importorskip("onnxruntime")
    calls = iter(range(100))

    def drifting(x):
        return x + float(next(calls))

    with pytest.raises(OnnxError, match=r"computes other values than burn_torch\n  given: .*off by at most 1"):
        export(drifting, floats(3), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
    assert export(drifting, floats(3), tmp_path / "m.onnx", compare=False).error is None


def test_without_onnxruntime_the_report_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    report = export(net(), floats(3, 6), tmp_path / "m.onnx")
    assert report.error is None
    assert "onnxruntime is not installed" in str(report)


def test_without_onnx_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(OnnxError, match=r"needs the package onnx(.*\n)*.*pip install 'burn-torch\[onnx\]'"):
        export(net(), floats(3, 6), tmp_path / "m.onnx")


# -- element types and shapes ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [DType.F64, DType.F16, DType.BF16, DType.I64, DType.I32, DType.U8])
def test_element_types(dtype, tmp_path):
    x = floats(3, 4).cast(dtype) if dtype.is_float else Tensor.from_data(np.arange(12).reshape(3, 4), CPU).cast(dtype)
    report = export(lambda x: (x + x, x.reshape([4, 3]), x.equal(x)), x, tmp_path / "m.onnx")
    assert report.runtime.startswith("onnxruntime")
    results = load(tmp_path / "m.onnx").forward(x)
    assert [y.dtype for y in results] == [dtype, dtype, DType.BOOL]
    assert np.array_equal(values(results[0]), values(x + x))


@compared
def test_scalars_and_empty_tensors(tmp_path):
    def parts(x):
        return ops.reshape(ops.sum(x, dims=(0, 1)), shape=()), x.narrow(0, 0, 0), x.narrow(1, 1, 2)

    report = export(parts, floats(3, 4), tmp_path / "m.onnx")
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert list(shapes(graph.output).values()) == [[], [0, 4], [3, 2]]
    assert len(report.comparisons) == 3
    assert export(lambda x: x * 2.0, floats(0, 3), tmp_path / "m.onnx").error == 0.0


def test_a_number_is_no_output(tmp_path):
    with pytest.raises(ArgumentError, match=r"a result is a number, not a tensor\n  given: .*output.1. = 3"):
        export(lambda x: (x, 3), floats(2), tmp_path / "m.onnx")


# -- dynamic axes ------------------------------------------------------------------------------------------------------
def test_the_guide_model_takes_batches_of_any_size(tmp_path):
    model = MNIST.model(MNIST.config(), TRAINING)
    report = export(model, floats(2, 28, 28), tmp_path / "m.onnx", dynamic_batch=True)
    assert len(report.comparisons) in (0, 2)
    assert shapes(onnx.load(tmp_path / "m.onnx").graph.input) == {"images": ["batch", 28, 28]}
    assert shapes(onnx.load(tmp_path / "m.onnx").graph.output) == {"output": ["batch", 10]}
    run, again = session(tmp_path / "m.onnx"), load(tmp_path / "m.onnx")
    for batch in (1, 2, 5, 17):
        x = floats(batch, 28, 28, seed=batch)
        want = values(model.valid().forward(x))
        assert np.abs(run.run(None, {"images": values(x)})[0] - want).max() <= 1e-5
        assert np.abs(values(again.forward(x)) - want).max() <= 1e-6


def test_an_example_of_batch_one_gives_a_model_for_any_batch(tmp_path):
    export(lambda x: x.reshape([x.dims()[0], -1]) + 1.0, floats(1, 2, 3), tmp_path / "m.onnx", dynamic_batch=True)
    run = session(tmp_path / "m.onnx")
    for batch in (1, 4):
        assert run.run(None, {"x": np.zeros((batch, 2, 3), np.float32)})[0].shape == (batch, 6)


def test_two_dynamic_axes_of_a_transformer(tmp_path):
    encoder = nn.TransformerEncoderConfig(8, 16, 2, 2).init(CPU)

    def encode(encoder, tokens):
        batch, seq, _ = tokens.dims()
        mask = nn.generate_autoregressive_mask(batch, seq, tokens.device)
        return encoder.forward(nn.TransformerEncoderInput(tokens).mask_attn(mask))

    export(encode, (encoder, floats(2, 5, 8)), tmp_path / "m.onnx", dynamic_dims={"tokens": {0: "batch", 1: "seq"}})
    assert shapes(onnx.load(tmp_path / "m.onnx").graph.output) == {"output": ["batch", "seq", 8]}
    run = session(tmp_path / "m.onnx")
    for shape in ((1, 1, 8), (3, 4, 8), (2, 11, 8)):
        x = floats(*shape)
        assert np.abs(run.run(None, {"tokens": values(x)})[0] - values(encode(encoder, x))).max() <= 1e-5


@compared
def test_sizes_become_formulas_of_the_axes(tmp_path):
    def spread(x, y):
        n, m = x.dims()[0], y.dims()[0]
        total = Tensor.cat([x, y], 0)
        grid = x.reshape([n, 1, 3]).expand([n, m, 3]).reshape([n * m, 3])
        return total.narrow(0, 1, n + m - 2), grid / float(n), Tensor.arange(range(2 * n + 1), x.device)

    example = (floats(4, 3), floats(6, 3))
    report = export(spread, example, tmp_path / "m.onnx", dynamic_dims={"x": {0: "n"}, "y": {0: "m"}})
    outputs = onnx.load(tmp_path / "m.onnx").graph.output
    assert list(shapes(outputs).values()) == [["n + m - 2", 3], ["n * m", 3], ["2 * n + 1"]]
    assert report.error == 0.0
    for n, m in ((1, 2), (5, 5), (9, 3)):
        x, y = floats(n, 3), floats(m, 3, seed=1)
        computed = session(tmp_path / "m.onnx").run(None, {"x": values(x), "y": values(y)})
        for got, want in zip(computed, spread(x, y), strict=True):
            assert np.array_equal(got, values(want))


def test_a_fraction_of_a_size_is_worked_out(tmp_path):
    def means(x):
        n = x.dims()[0]
        return x.sum_dim(0) * (1.0 / n), x / n**0.5

    report = export(means, floats(4, 3), tmp_path / "m.onnx", dynamic_batch=True)
    outputs = session(tmp_path / "m.onnx").run(None, {"x": np.ones((10, 3), np.float32)})
    assert np.allclose(outputs[0], 1.0)
    assert np.allclose(outputs[1], 10**-0.5)
    assert report.error <= 1e-6


def refused_loop(x):
    parts = [x.narrow(0, i, 1) * float(i) for i in range(x.dims()[0])]
    return Tensor.cat(parts, 0)


def refused_branch(x):
    return x.exp() if x.dims()[0] % 2 else x.tanh()


def refused_data(x):
    return x * Tensor.from_data(np.arange(x.dims()[0], dtype=np.float32).reshape(-1, 1), x.device)


def refused_formula(x):
    return x.narrow(0, 0, x.dims()[0] // 2)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (refused_loop, "what is computed depends on the size of a dynamic axis"),
        (refused_branch, "what is computed depends on the size of a dynamic axis"),
        (refused_data, "data that the function makes depends on the size of a dynamic axis"),
        (refused_formula, "no formula of the dynamic axes"),
    ],
)
def test_what_depends_on_a_size_in_another_way_is_refused(function, words, tmp_path):
    export(function, floats(4, 3), tmp_path / "m.onnx")
    (tmp_path / "m.onnx").unlink()
    with pytest.raises(OnnxError, match=words) as caught:
        export(function, floats(4, 3), tmp_path / "m.onnx", dynamic_batch=True)
    assert function is refused_data or f"in {function.__name__}" in str(caught.value)
    assert "given:" in str(caught.value)
    assert "mend:" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_loop_of_python_has_a_fixed_number_of_steps(tmp_path):
    def total(x):
        y = x.narrow(1, 0, 1)
        for i in range(1, x.shape[1]):
            y = (y + x.narrow(1, i, 1)).tanh()
        return y

    with pytest.raises(OnnxError, match="a loop over an axis"):
        export(total, floats(2, 5, 4), tmp_path / "m.onnx", dynamic_dims={"x": {1: "seq"}})
    report = export(total, floats(2, 5, 4), tmp_path / "m.onnx", dynamic_batch=True)
    assert report.error in (None, pytest.approx(0, abs=1e-6))


def test_sizes_beyond_the_example_are_tried_below_it(tmp_path):
    layer = nn.PositionalEncodingConfig(8, max_sequence_size=16).init(CPU)
    report = export(layer, floats(2, 16, 8), tmp_path / "m.onnx", dynamic_dims={"input": {1: "seq"}})
    assert report.outputs == ("output",)
    outputs = session(tmp_path / "m.onnx").run(None, {"input": np.zeros((2, 3, 8), np.float32)})
    assert np.allclose(outputs[0], values(layer.forward(Tensor.zeros((2, 3, 8), CPU))))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"input_names": ["a"]}, r"input_names does not name the inputs\n  given: *'a'\n  expected: 2 distinct names"),
        ({"input_names": ["a", "a"]}, "input_names does not name the inputs"),
        ({"output_names": ["x"]}, r"outputs need names of their own\n.*'x'\n.*none of them that of an input"),
        ({"output_names": ["a", "b"]}, "1 distinct names"),
        ({"dynamic_dims": {"z": {0: "n"}}}, r"no input 'z', but x, y"),
        ({"dynamic_dims": {"x": {2: "n"}}}, r"no axis 2 of x \(2, 3\)"),
        ({"dynamic_dims": {"x": {0: "n"}, "y": {0: "n"}}}, "n: axis 0 of x is 2, axis 0 of y is 3"),
        ({"opset": 12}, r"this opset cannot be written\n  given: *opset 12\n  expected: 13 to"),
        ({"opset": 999}, "this opset cannot be written"),
    ],
)
def test_arguments_that_do_not_fit(settings, words, tmp_path):
    with pytest.raises(ArgumentError, match=words):
        export(lambda x, y: x.matmul(y), (floats(2, 3), floats(3, 4)), tmp_path / "m.onnx", **settings)
    assert list(tmp_path.iterdir()) == []


def test_nothing_returned(tmp_path):
    with pytest.raises(ArgumentError, match="nothing is returned"):
        export(lambda x: None, floats(2), tmp_path / "m.onnx")


# -- operators ---------------------------------------------------------------------------------------------------------
def test_all_rows_that_cannot_be_written_are_reported_at_once(tmp_path):
    class Odd(Module):
        inner: nn.Linear

        def forward(self, x: Tensor) -> Tensor:
            y = ops.cumprod(self.inner.forward(x), dim=0)
            return ops.linear_scan(y, x, dim=0) + ops.bernoulli.run(x.backend, Tensor, (0.5, 1, 2), DRAWN)

    layer = Odd(nn.LinearConfig(3, 3).init(CPU))
    with pytest.raises(OnnxError, match="3 operations cannot be written in opset 18") as caught:
        export(layer, floats(2, 3), tmp_path / "m.onnx")
    text = str(caught.value)
    assert "cumprod: CumProd needs opset 26" in text
    assert "linear_scan: ONNX has no such operator" in text
    assert "bernoulli: draws random numbers" in text
    assert text.count(f"{__file__}:") == 3
    assert "burn_torch.onnx.row" in text


DRAWN = {"shape": (2, 3), "dtype": DType.F32, "place": "cpu"}


def test_newer_opsets_have_shorter_words(tmp_path):
    layer = nn.Gelu()
    export(layer, floats(2, 3), tmp_path / "m.onnx", opset=18)
    assert "Erf" in operators(tmp_path / "m.onnx")
    export(layer, floats(2, 3), tmp_path / "m.onnx", opset=20)
    assert operators(tmp_path / "m.onnx") == ["Gelu"]


def test_the_newest_opset_is_read_back(tmp_path):
    newest = onnx.defs.onnx_opset_version()
    model = net()
    report = export(model, floats(3, 6), tmp_path / "m.onnx", opset=newest, dynamic_batch=True)
    assert report.opset == newest
    again = load(tmp_path / "m.onnx").forward(floats(5, 6))
    assert np.abs(values(again) - values(model.forward(floats(5, 6)))).max() <= 1e-6


def test_a_row_of_ones_own(tmp_path):
    from burn_torch.core.spec import TensorSpec
    from burn_torch.onnx.rows import registry
    from burn_torch.ops import op

    @op(torch=lambda x: x * 3, numpy=lambda x: x * 3, nondifferentiable=True, namespace="test_export")
    def thrice(x: TensorSpec) -> TensorSpec:
        """Three times x."""
        return x

    with pytest.raises(OnnxError, match="test_export::thrice: ONNX has no such operator"):
        export(lambda x: thrice(x), floats(2), tmp_path / "m.onnx")
    try:

        @row("test_export::thrice")
        def _(w, x: Wire) -> Wire:
            if x.ndim != 1:
                raise Cannot("more than one axis")
            return w.node("Mul", x, w.number(3.0, x.dtype))

        assert export(lambda x: thrice(x), floats(2), tmp_path / "m.onnx").error in (None, 0.0)
        with pytest.raises(OnnxError, match="thrice: more than one axis at "):
            export(lambda x: thrice(x), floats(2, 2), tmp_path / "m.onnx")
    finally:
        registry._EXPORTS.pop("test_export::thrice", None)
        ops.REGISTRY.pop("test_export::thrice", None)


@pytest.mark.parametrize("opset", range(13, onnx.defs.onnx_opset_version() + 1))
def test_every_opset_is_read_back(opset, tmp_path):
    class Small(Module):
        conv: nn.Conv2d
        norm: nn.GroupNorm
        encoder: nn.TransformerEncoder

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm.forward(self.conv.forward(x)).flatten(2, 3).swap_dims(1, 2)
            return self.encoder.forward(nn.TransformerEncoderInput(x)).max_dim(1)

    layer = Small(
        nn.Conv2dConfig((2, 4), (3, 3)).init(CPU),
        nn.GroupNormConfig(2, 4).init(CPU),
        nn.TransformerEncoderConfig(4, 8, 2, 1).init(CPU),
    )
    report = export(layer, floats(2, 2, 5, 5), tmp_path / "m.onnx", opset=opset, dynamic_batch=True)
    assert report.error is None or report.error <= 3e-5  # 1.1e-5 was seen: groups of few elements, in f32
    x = floats(3, 2, 5, 5, seed=1)
    again = load(tmp_path / "m.onnx").forward(x)
    assert np.abs(values(again) - values(layer.forward(x))).max() <= 3e-5
