"""The example without a Learner learns the digits, the same bits each time."""

import runpy
from pathlib import Path

from burn_torch import Device

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_training_loop" / "custom_training_loop.py"


def test_custom_training_loop_learns(capsys):
    names = runpy.run_path(str(EXAMPLE))
    config = names["TrainingConfig"](num_epochs=3)
    device = Device.cpu().autodiff()
    model, accuracy = names["run"](config, device)
    again, _ = names["run"](config, device)
    assert accuracy >= 88.0
    first, second = (m.linear1.weight.val().into_data() for m in (model, again))
    assert first == second
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("epoch 1  step   0  loss 2.")
    assert sum("test accuracy" in line for line in lines) == 6
