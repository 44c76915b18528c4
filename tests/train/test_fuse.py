"""`SupervisedTraining.fuse`: steps in generated kernels, here in C; the same bits again, also across a resume."""

from __future__ import annotations

import os

import pytest

from burn_torch import ConfigError, Device
from burn_torch.backend.libtorch.generated.c_kernels import compiler
from burn_torch.train import MultiDevice, MultiDeviceOptim, Split
from burn_torch.train.learner import Learner

c_kernels = [
    pytest.mark.skipif(compiler() is None, reason="no C compiler with OpenMP here"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="kernels run in Triton's interpreter here"),
]


def test_a_resumed_run_keeps_the_bits_of_fused_steps(program, tmp_path):
    whole = program.make_training(tmp_path / "whole", 2).fuse().launch(program.make_learner())
    program.make_training(tmp_path / "parts", 1).fuse().launch(program.make_learner())
    parts = program.make_training(tmp_path / "parts", 2).fuse().resume().launch(program.make_learner())
    assert program.digest(parts.learner.model) == program.digest(whole.learner.model)
    plain = program.make_training(tmp_path / "plain", 2).launch(program.make_learner())
    for split in Split:
        fused, unfused = (run.history.values("Loss", split, 2) for run in (whole, plain))
        assert fused == pytest.approx(unfused, rel=1e-4)


def test_the_summary_says_it(program, tmp_path):
    shown = program.make_training(tmp_path / "a", 1).fuse().summary().launch(program.make_learner()).summary
    assert shown is not None
    assert "Steps: fused" in shown.splitlines()
    plain = program.make_training(tmp_path / "b", 1).summary().launch(program.make_learner()).summary
    assert plain is not None
    assert "fused" not in plain


def test_what_does_not_go_together(program, tmp_path):
    with pytest.raises(ConfigError, match=r"(?s)fuse\(\) with compile\(False\).*compiled steps.*leave one of them out"):
        program.make_training(tmp_path, 1).compile(False).fuse().launch(program.make_learner())
    several = MultiDevice([Device.cpu(), Device.cpu()], MultiDeviceOptim.OptimMainDevice)
    training = program.make_training(tmp_path, 1).with_training_strategy(several).fuse()
    with pytest.raises(ConfigError, match=r"(?s)fuses as its devices do.*fuse\(True\) with MultiDevice.*leave fuse"):
        training.launch(program.make_learner())


@pytest.mark.parametrize("flag", [None, False])
def test_a_fused_device_trains_with_the_bits_of_a_plain_one(program, tmp_path, flag):
    """Without generated kernels a fused device computes what its inner device does."""
    plain = program.make_training(tmp_path / "plain", 1).launch(program.make_learner())
    learner = program.make_learner()
    device = Device.cpu().fused().autodiff()
    moved = Learner(learner.model.fork(device), learner.optim, learner.lr_scheduler)
    fused = program.make_training(tmp_path / "fused", 1).fuse(flag).launch(moved)
    assert program.digest(fused.learner.model) == program.digest(plain.learner.model)
