"""Small real models: the same outputs as onnx's own evaluator, loaded, compiled, trained, and written as source."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx.reference import ReferenceEvaluator

import burn_torch
from burn_torch import BurnTorchError, Device, Module, Param, RunningState, Tensor, TraceError
from burn_torch.module import GradientsParams
from burn_torch.onnx import ModelGen, load
from burn_torch.optim import SgdConfig
from tests.onnx.small_models import MODELS

BY_DATA = {"branches", "positions"}
"""Models that read data on the way."""

EVERY = pytest.mark.parametrize("name", list(MODELS))


def tensors(arrays, device=None):
    return [Tensor.from_data(array, device or Device.cpu()) for array in arrays]


def several(found):
    return found if isinstance(found, tuple) else (found,)


def imported(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@EVERY
def test_outputs_are_those_of_the_reference(name):
    proto, inputs = MODELS[name]()
    model = load(proto.SerializeToString())
    if name == "lstm":  # onnx's evaluator leaves sequence_lens out; onnxruntime does not
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        want = session.run(None, dict(zip([i.name for i in proto.graph.input], inputs, strict=True)))
    else:
        want = ReferenceEvaluator(proto).run(None, dict(zip([i.name for i in proto.graph.input], inputs, strict=True)))
    got = several(model.forward(*tensors(inputs)))
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        values = one.into_data().values
        assert values.dtype == np.asarray(other).dtype
        np.testing.assert_allclose(values, other, rtol=2e-5, atol=1e-6)


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
        with pytest.raises(TraceError, match="while its function was traced") as caught:
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
    ruff = shutil.which("ruff") or shutil.which("ruff", path=str(__import__("pathlib").Path(sys.executable).parent))
    if ruff is None:
        pytest.skip("ruff is not installed")
    proto, _ = MODELS[name]()
    file = tmp_path / f"{name}.onnx"
    file.write_bytes(proto.SerializeToString())
    path = ModelGen().input(file).out_dir(tmp_path / "model").run()
    config = __import__("pathlib").Path(__file__).parents[2] / "pyproject.toml"
    for command in (["format", "--check", "--diff"], ["check"]):
        done = subprocess.run(
            [ruff, *command, "--no-cache", "--config", str(config), str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_written_source_passes_mypy(tmp_path):
    pytest.importorskip("mypy")
    paths = []
    for name, make in MODELS.items():
        file = tmp_path / f"{name}.onnx"
        file.write_bytes(make()[0].SerializeToString())
        paths.append(str(ModelGen().input(file).out_dir(tmp_path / name).run()))
    root = __import__("pathlib").Path(__file__).parents[2]
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
        model = optimizer.step(0.05, model, grads)
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
    model = load(MODELS["mlp"]()[0].SerializeToString())
    with pytest.raises(BurnTorchError, match=r"given[\s\S]*expected[\s\S]*mend") as caught:
        model.forward(Tensor.zeros((2, 9), Device.cpu()))
    assert "in Gemm (opset 18) 'fc1'" in caught.value.__notes__


def test_real_models_match_their_stored_outputs(shared_data):
    import onnx
    from onnx import numpy_helper

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
    from onnx import numpy_helper

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
