"""The configs of kernels that a run uses: pinned in its directory, kept in its checkpoints, back at a resume."""

import contextlib
import json

import pytest

from burn_torch import Device
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.capabilities import TorchCapabilities
from burn_torch.train.checkpoint import FileCheckpointer

CHOICE = '{"key": "softmax", "device": "d", "kernel": "01", "config": {"block": 64}}'
LOCK = f'{{\n "format": "burn_kernels.lock",\n "version": 1,\n "choices": [\n  {CHOICE}\n ]\n}}\n'


def test_a_checkpoint_holds_the_choices_and_a_resume_begins_with_them(program, tmp_path, monkeypatch):
    calls = []

    @contextlib.contextmanager
    def pinned(self, path, place, text):
        calls.append((path.name, place, text))
        yield lambda: LOCK

    monkeypatch.setattr(TorchCapabilities, "pinned", pinned)
    program.make_training(tmp_path / "run", 1).launch(program.make_learner())
    assert calls == [("autotune.lock", "cpu", None)]
    _, checkpoint = FileCheckpointer(tmp_path / "run/checkpoint").restore(1)
    assert checkpoint.tuning == LOCK
    program.make_training(tmp_path / "run", 2).resume().launch(program.make_learner())
    assert calls[1:] == [("autotune.lock", "cpu", LOCK)]


def test_on_the_host_there_is_nothing_to_choose(tmp_path):
    with LibTorch().capabilities.pinned(tmp_path / "autotune.lock", "cpu", None) as choices:
        assert choices() is None
    assert list(tmp_path.iterdir()) == []


class TestKernels:
    """With the lockfile of `burn_kernels` itself; it needs no GPU."""

    @pytest.fixture(autouse=True)
    def selector(self):
        pytest.importorskip("triton")
        from burn_kernels.autotune.selection import Selector, selecting
        from burn_kernels.autotune.store import Store

        with selecting(Selector(Store(None))) as selector:
            yield selector

    def test_a_run_pins_what_it_chooses(self, tmp_path, selector):
        from burn_kernels.autotune.lockfile import Pin

        path = tmp_path / "autotune.lock"
        with LibTorch().capabilities.pinned(path, "cuda:0", None) as choices:
            assert choices() is None
            selector.lockfile.append(Pin("softmax", "d", "01", {"block": 64}))
            assert json.loads(choices()) == json.loads(LOCK)
        assert selector.lockfile is None

    def test_a_resume_begins_with_the_choices_of_the_checkpoint(self, tmp_path, selector):
        path = tmp_path / "autotune.lock"
        with LibTorch().capabilities.pinned(path, "cuda:0", LOCK) as choices:
            assert dict(selector.lockfile.pins["softmax", "d"].config) == {"block": 64}
            assert choices() == LOCK

    def test_a_lock_of_the_users_own_stays(self, tmp_path, selector):
        from burn_kernels import autotune

        own = tmp_path / "own.lock"
        own.write_text(LOCK)
        with autotune.lock(own), LibTorch().capabilities.pinned(tmp_path / "autotune.lock", "cuda:0", None) as choices:
            assert selector.lockfile.path == own
            assert choices() == LOCK
        assert not (tmp_path / "autotune.lock").exists()

    def test_where_measuring_was_asked_for_nothing_is_pinned(self, tmp_path, selector):
        from burn_kernels import autotune

        with (
            autotune.using("on"),
            LibTorch().capabilities.pinned(tmp_path / "autotune.lock", "cuda:0", None) as choices,
        ):
            assert selector.lockfile is None
            assert choices() is None


@pytest.mark.gpu
def test_checkpoints_beside_the_training_hold_the_same_bits_on_a_gpu(program, tmp_path):
    from safetensors.numpy import load_file

    from burn_torch.core import files
    from burn_torch.train import SingleDevice

    class Keeping(files.Disk):
        def remove(self, path):
            if path.suffix != ".safetensors":
                super().remove(path)

    saved_tensors = {}
    for background in (True, False):
        folder = tmp_path / f"{background}"
        training = program.make_training(folder, 2).checkpoint_every(steps=1).async_checkpoints(background)
        with files.using(Keeping()):
            training.with_training_strategy(SingleDevice(Device.cuda(0).autodiff())).launch(program.make_learner())
        saved_tensors[background] = {
            path.name: load_file(path) for path in sorted((folder / "checkpoint").glob("*.safetensors"))
        }
    assert len(saved_tensors[True]) == 12
    for name, tensors in saved_tensors[True].items():
        for key, values in tensors.items():
            assert values.tobytes() == saved_tensors[False][name][key].tobytes(), (name, key)
