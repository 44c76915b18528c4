"""Tests what the documentation promises: the same bits for the same seed, and the accuracies."""

from __future__ import annotations

import json
import statistics

import pytest

SMALL = ["--set", "channels=4", "--set", "hidden=16"]


def accuracy(folder):
    """Validation accuracy after the last epoch, in percent."""
    result = json.loads((folder / "result.json").read_text())
    return result["metrics"]["valid"]["Accuracy"][-1]


@pytest.fixture
def digits(burn, bits, tmp_path):
    def trained(name, *words):
        done = burn("train", "digits", "--artifact-dir", name, *words, cwd=tmp_path)
        assert (done.code, done.err) == (0, "")
        return bits(tmp_path / name / "model.safetensors")

    return trained


def test_same_seed_same_bits_whatever_the_number_of_workers(digits):
    runs = [
        digits(f"{workers}-{i}", "--epochs", 2, "--seed", 11, "--set", f"num_workers={workers}", *SMALL)
        for i, workers in enumerate([0, 0, 1, 4])
    ]
    assert len(set(runs)) == 1


def test_another_seed_has_other_bits(digits):
    assert digits("a", "--epochs", 1, "--seed", 1, *SMALL) != digits("b", "--epochs", 1, "--seed", 2, *SMALL)


def test_digits_learn_in_few_epochs(digits, tmp_path):
    digits("run", "--epochs", 3, "--seed", 0)
    assert accuracy(tmp_path / "run") >= 93  # 20 epochs of the default recipe: see below


@pytest.mark.slow
@pytest.mark.parametrize(("split", "median", "each"), [("stratified", 97.0, 96.0), ("file-order", 96.0, 95.0)])
def test_accuracy_of_the_digits(split, median, each, digits, tmp_path):
    for seed in range(5):
        digits(f"{seed}", "--seed", seed, "--set", f"split={split}")
    accuracies = [accuracy(tmp_path / f"{seed}") for seed in range(5)]
    assert statistics.median(accuracies) >= median, accuracies
    assert min(accuracies) >= each, accuracies


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_accuracy_of_mnist_after_three_epochs(seed, burn, shared_data, tmp_path):
    words = ["--epochs", 3, "--seed", seed, "--data-dir", shared_data / "mnist", "--artifact-dir", "run"]
    done = burn("train", "mnist", *words, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert accuracy(tmp_path / "run") >= 97.5


@pytest.mark.slow
def test_mnist_has_the_same_bits_whatever_the_number_of_workers(burn, bits, shared_data, tmp_path):
    models = set()
    for i, workers in enumerate([0, 0, 1, 4]):
        words = ["--epochs", 1, "--seed", 5, "--set", f"num_workers={workers}", "--artifact-dir", f"run-{i}"]
        done = burn("train", "mnist", *words, "--data-dir", shared_data / "mnist", cwd=tmp_path)
        assert (done.code, done.err) == (0, "")
        models.add(bits(tmp_path / f"run-{i}" / "model.safetensors"))
    assert len(models) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "data", "metric", "least"),
    [
        ("text-classification", "ag-news", "Accuracy", 88.0),
        ("fashion-mnist", "fashion-mnist", "Accuracy", 89.0),
        ("regression", "california-housing", "R2", 77.0),
    ],
)
def test_figures_of_recipes_on_real_data(recipe, data, metric, least, burn, shared_data, tmp_path):
    done = burn("train", recipe, "--data", shared_data / data, "--seed", 0, "--artifact-dir", "run", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["metrics"]["valid"][metric][-1] >= least


@pytest.mark.slow
def test_text_generation_on_real_data(burn, shared_data, tmp_path):
    words = ["--data", shared_data / "tiny-shakespeare", "--epochs", 1, "--seed", 0, "--artifact-dir", "run"]
    done = burn("train", "text-generation", *words, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["metrics"]["valid"]["Bits per Byte"][-1] <= 2.95  # 2.79 after one epoch; 3 epochs: 2.51
    done = burn("predict", "run", "ROMEO:", "--set", "length=200", cwd=tmp_path)
    words = done.out.split()
    assert (
        sum(word.strip(",.:;!?'").lower() in {"the", "and", "to", "of", "i", "you", "my", "a"} for word in words) >= 3
    )
