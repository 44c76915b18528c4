"""Small real models: the same outputs as onnx's own evaluator, loaded, compiled, trained, and written as source."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("onnx")

from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import burn_torch
from burn_torch import BurnTorchError, Device, Module, Param, RunningState, Tensor, TraceError
from burn_torch.module import GradientsParams
from burn_torch.onnx import ModelGen, load
from burn_torch.onnx.names import Names
from burn_torch.onnx.plan import plan_of
from burn_torch.onnx.reader import read_bytes
from burn_torch.onnx.source import source_of
from burn_torch.optim import SgdConfig
from tests.onnx.small_models import MODELS

BY_DATA = {"branches", "positions"}
"""Models that read data on the way."""

EVERY = pytest.mark.parametrize("name", list(MODELS))


def tensors(arrays, device=None):
    return [Tensor.from_data(array, device or Device.cpu()) for array in arrays]


def several(output):
    return output if isinstance(output, tuple) else (output,)


def imported(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def by_hand(name, proto, x):
    """The outputs of models that onnx's own evaluator cannot run, in numpy."""
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    if name == "loop":
        stages = []
        for _ in range(4):
            x = x @ weights["w"]
            stages.append(x.sum())
        return [x, np.array(stages, np.float32)]
    if name == "scan":
        sums = np.cumsum(x[::-1], axis=0)
        return [sums[-1], sums]
    if name == "quantised":
        whole = (np.clip(np.rint(x / 0.05) + 128, 0, 255) - 128) * np.float32(0.05)
        return [whole @ ((weights["q"].astype(np.float32) - weights["qz"]) * weights["qs"])]
    if name == "function":

        def elu(v, alpha):
            return np.where(v > 0, v, alpha * (np.exp(v) - 1)).astype(np.float32)

        return [elu(elu(x * weights["w"], 0.5) * x, 2.0)]
    return None


@EVERY
def test_outputs_are_those_of_the_reference(name):
    proto, inputs = MODELS[name]()
    want = by_hand(name, proto, inputs[0])
    if want is None and name != "lstm":  # where onnx's evaluator leaves sequence_lens out
        want = ReferenceEvaluator(proto).run(None, dict(zip([i.name for i in proto.graph.input], inputs, strict=True)))
    if name == "lstm":
        want = lstm_by_torch(proto, inputs[0])
    check(load(proto.SerializeToString()).forward(*tensors(inputs)), want)


def check(got, want):
    assert len(several(got)) == len(want)
    for one, other in zip(several(got), want, strict=True):
        values = one.into_data().values
        assert values.dtype == np.asarray(other).dtype
        np.testing.assert_allclose(values, other, rtol=2e-5, atol=1e-6)


def lstm_by_torch(proto, x):
    """torch's LSTM over a packed sequence, gates in torch's order."""
    weights = {
        tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in proto.graph.initializer
    }
    twin = torch.nn.LSTM(3, 4, bidirectional=True)
    order = torch.cat([torch.arange(4) + 4 * gate for gate in (0, 2, 3, 1)])  # ONNX: i o f c
    with torch.no_grad():
        for i, end in enumerate(("", "_reverse")):
            getattr(twin, f"weight_ih_l0{end}").copy_(weights["W"][i][order])
            getattr(twin, f"weight_hh_l0{end}").copy_(weights["R"][i][order])
            getattr(twin, f"bias_ih_l0{end}").copy_(weights["B"][i][:16][order])
            getattr(twin, f"bias_hh_l0{end}").copy_(weights["B"][i][16:][order])
        packed = torch.nn.utils.rnn.pack_padded_sequence(torch.from_numpy(x), torch.tensor([5, 3]))
        y, (_, c) = twin(packed)
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y)
    y = y.reshape(5, 2, 2, 4).permute(0, 2, 1, 3).numpy()
    return [y, c.numpy(), y.sum()]


@EVERY
def test_outputs_are_those_of_onnxruntime(name):
    runtime = pytest.importorskip("onnxruntime")
    proto, inputs = MODELS[name]()
    proto.graph.name = "checked"
    if name == "quantised":
        proto.opset_import[0].version = 19
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, dict(zip([i.name for i in proto.graph.input], inputs, strict=True)))
    check(load(proto.SerializeToString()).forward(*tensors(inputs)), want)


@EVERY
def test_numpy_gives_the_same_as_torch(name):
    proto, inputs = MODELS[name]()
    one = several(load(proto.SerializeToString()).forward(*tensors(inputs)))
    there = Device.ndarray()
    other = several(load(proto.SerializeToString(), there).forward(*tensors(inputs, there)))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.into_data().values, b.into_data().values, rtol=2e-5, atol=1e-6)


@EVERY
def test_a_compiled_model_gives_the_same(name):
    proto, inputs = MODELS[name]()
    model = load(proto.SerializeToString())
    compiled = burn_torch.compile(lambda model, *xs: model.forward(*xs))
    if name in BY_DATA:
        with pytest.raises(TraceError, match="traced") as caught:
            compiled(model, *tensors(inputs))
        assert any("in " in note and "(opset 18)" in note for note in caught.value.__notes__)
        return
    for one, other in zip(
        several(compiled(model, *tensors(inputs))), several(model.forward(*tensors(inputs))), strict=True
    ):
        np.testing.assert_allclose(one.into_data().values, other.into_data().values, rtol=1e-6, atol=1e-7)


@EVERY
def test_written_source_gives_the_same_bits(name, tmp_path):
    proto, inputs = MODELS[name]()
    file = tmp_path / f"{name}.onnx"
    file.write_bytes(proto.SerializeToString())
    path = ModelGen().input(file).out_dir(tmp_path / "model").run()
    written = imported(path, f"written_{name}").Model.from_record(Device.cpu())
    loaded = load(file)
    assert [key for key, _ in written.named_params()] == [key for key, _ in loaded.named_params()]
    got, want = several(written.forward(*tensors(inputs))), several(loaded.forward(*tensors(inputs)))
    for one, other in zip(got, want, strict=True):
        assert one.dtype is other.dtype
        assert one.into_data().array.tobytes() == other.into_data().array.tobytes()


@EVERY
def test_written_source_is_in_form(name, tmp_path):
    ruff = shutil.which("ruff") or shutil.which("ruff", path=str(Path(sys.executable).parent))
    if ruff is None:
        pytest.skip("ruff is not installed")
    proto, _ = MODELS[name]()
    file = tmp_path / f"{name}.onnx"
    file.write_bytes(proto.SerializeToString())
    path = ModelGen().input(file).out_dir(tmp_path / "model").run()
    for command in (["format", "--check", "--diff"], ["check"]):  # by ruff's own rules, as in a project of a user
        done = subprocess.run(
            [ruff, *command, "--no-cache", "--isolated", str(path)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_names_are_cut_between_words_and_paths_do_not_stutter():
    names = Names()
    long = "bert.encoder.layer.0.attention.output.LayerNorm.weight_of_all_heads"
    assert names.unique(long) == "attention_output_layer_norm_weight_of_all_heads"
    assert names.unique("x" * 90) == "x" * 48
    rng = np.random.default_rng(0)
    node = helper.make_node("Conv", ["x", "onnx::Conv_193"], ["y"], "/layer1/layer1.0/conv1/Conv")
    weight = numpy_helper.from_array(rng.standard_normal((2, 3, 1, 1)).astype(np.float32), "onnx::Conv_193")
    shapes = [helper.make_tensor_value_info(name, 1, [1, size, 4, 4]) for name, size in (("x", 3), ("y", 2))]
    graph = helper.make_graph([node], "g", shapes[:1], shapes[1:], [weight])
    opsets = [
        helper.make_opsetid(domain, 1) for domain in ("com.microsoft", "ai.onnx.ml", "ai.onnx.training", "x" * 80)
    ]
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), *opsets])
    text = source_of(plan_of(read_bytes(proto.SerializeToString())))
    assert "layer1_0_conv1_weight: Param" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.slow
def test_written_source_passes_mypy(tmp_path):
    pytest.importorskip("mypy")
    paths = []
    for name, make in MODELS.items():
        file = tmp_path / f"{name}.onnx"
        file.write_bytes(make()[0].SerializeToString())
        paths.append(str(ModelGen().input(file).out_dir(tmp_path / name).run()))
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", "--config-file", str(root / "pyproject.toml"), *paths],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
    )
    assert done.returncode == 0, done.stdout


def test_weights_are_parameters_and_statistics_are_not():
    model = load(MODELS["cnn"]()[0].SerializeToString())
    assert isinstance(model, Module)
    assert [key for key, _ in model.named_params()] == ["conv_weight", "conv_bias", "scale", "shift", "fc"]
    assert [key for key, _ in model.named_states()] == ["mean", "var"]
    assert isinstance(model.conv_weight, Param)
    assert isinstance(model.mean, RunningState)
    assert model.conv_weight.shape == (6, 3, 3, 3)


@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "lstm", "gru", "quantised"])
def test_an_imported_model_trains(name, seed):
    proto, inputs = MODELS[name]()
    device = Device.cpu().autodiff()
    model = load(proto.SerializeToString(), device)
    target = None
    optimizer = SgdConfig().init()
    losses = []
    for _ in range(12):
        y = several(model.forward(*tensors(inputs, device)))[0]
        if target is None:
            target = Tensor.from_data(seed.uniform(-0.5, 0.5, y.shape).astype(np.float32), device)
        difference = y - target
        loss = (difference * difference).mean()
        losses.append(float(loss.into_scalar()))
        grads = GradientsParams.from_grads(loss.backward(), model)
        model, optimizer = optimizer.step(0.05, model, grads)
    assert losses[-1] < losses[0]
    assert all(param.val().is_require_grad() for _, param in model.named_params())


def test_a_record_of_the_one_loads_into_the_other(tmp_path):
    proto, inputs = MODELS["mlp"]()
    file = tmp_path / "net.onnx"
    file.write_bytes(proto.SerializeToString())
    path = ModelGen().input(file).out_dir(tmp_path).run_from_script()
    model = load(file).map_params(lambda param: param.map(lambda x: x * 2.0))
    model.save_file(tmp_path / "other.safetensors")
    written = imported(path, "written_other").Model.from_record(Device.cpu(), tmp_path / "other.safetensors")
    np.testing.assert_array_equal(
        written.forward(*tensors(inputs)).into_data().array, model.forward(*tensors(inputs)).into_data().array
    )


def test_inputs_come_by_name_too_and_others_are_refused():
    proto, inputs = MODELS["mlp"]()
    model = load(proto.SerializeToString())
    (x,) = tensors(inputs)
    np.testing.assert_array_equal(model.forward(x=x).into_data().array, model.forward(x).into_data().array)
    with pytest.raises(BurnTorchError, match=r"not the inputs[\s\S]*given[\s\S]*expected: x[\s\S]*not known z"):
        model.forward(x, z=x)
    with pytest.raises(BurnTorchError, match=r"missing x"):
        model.forward()


def test_a_wrong_shape_names_the_node():
    proto = MODELS["mlp"]()[0]
    with pytest.raises(BurnTorchError, match=r"other sizes than the file fixes[\s\S]*given[\s\S]*expected[\s\S]*mend"):
        load(proto.SerializeToString()).forward(Tensor.zeros((2, 9), Device.cpu()))
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(BurnTorchError, match=r"given[\s\S]*expected[\s\S]*mend") as caught:
        load(proto.SerializeToString()).forward(Tensor.zeros((2, 9), Device.cpu()))
    assert "in Gemm (opset 18) 'fc1'" in caught.value.__notes__


def test_real_models_match_their_stored_outputs(shared_data):
    import onnx

    folder = shared_data / "onnx-models" / "pretrained"
    for path in sorted(folder.glob("*/model.onnx")):
        model = load(path)
        for case in sorted(path.parent.glob("test_data_set_*")):

            def read(kind, case=case):
                files = sorted(case.glob(f"{kind}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
                return [numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes())) for file in files]

            for got, want in zip(several(model.forward(*tensors(read("input")))), read("output"), strict=True):
                np.testing.assert_allclose(got.into_data().values, want, rtol=1e-4, atol=1e-4, err_msg=str(path))
    model = load(folder / "super-resolution" / "model.onnx")
    x = ((np.arange(50176) * 7919) % 256 / 256).astype(np.float32).reshape(1, 1, 224, 224)
    y = model.forward(*tensors([x])).into_data().values[0, 0]
    assert y.mean() == pytest.approx(0.503314, abs=1e-5)
    assert y[335, 336] == pytest.approx(0.512027, abs=1e-5)


@pytest.mark.slow
def test_the_light_models_run(shared_data):
    import onnx

    folder = shared_data / "onnx-models" / "onnx-backend-tests" / "light"
    paths = sorted(folder.glob("*.onnx"))
    assert len(paths) == 9
    for path in paths:
        model = load(path)
        shape = model.plan.inputs[0].shape
        count = int(np.prod(shape))
        x = (np.arange(count) / count).reshape(shape).astype(np.float32)
        want = numpy_helper.to_array(
            onnx.TensorProto.FromString(path.with_name(f"{path.stem}_output_0.pb").read_bytes())
        )
        np.testing.assert_allclose(model.forward(*tensors([x])).into_data().values, want, rtol=1e-3, atol=1e-5)
