"""The GAN learns inside the Learner: compiled and eager alike, and resumed as if never stopped."""

import runpy
from pathlib import Path

import pytest

from burn_torch.train import SilentRenderer

EXAMPLE = Path(__file__).parents[2] / "examples" / "gan" / "gan.py"


def run(folder, epochs, *, compiled=True, resume=False):
    names = runpy.run_path(str(EXAMPLE))
    return names["run"](
        str(folder), epochs, lambda training: training.renderer(SilentRenderer()).compile(compiled).resume(resume)
    )


def bits(result):
    return [param.val().into_data().array.tobytes() for _, param in result.model.named_params()]


def test_a_gan_learns_and_resumes(tmp_path):
    whole = run(tmp_path / "whole", 3)
    distances = [value for _, value in whole.history.series("Loss", "valid")]
    assert distances[-1] < 0.6 * distances[0]
    run(tmp_path / "parts", 1)
    assert bits(run(tmp_path / "parts", 3, resume=True)) == bits(whole)


@pytest.mark.slow
def test_eager_and_compiled_have_the_same_bits(tmp_path):
    assert bits(run(tmp_path / "eager", 2, compiled=False)) == bits(run(tmp_path / "compiled", 2))
