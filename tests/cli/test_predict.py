"""`burn-torch predict`: every format says the same of the same image."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from burn_torch.cli.image_classification import PREDICT_BATCH


@pytest.fixture(scope="module")
def seen(burn, trained, files, tmp_path_factory):
    """Returns what the model says of the three images of three.npy."""
    done = burn("predict", trained, files / "three.npy", "--json", cwd=tmp_path_factory.mktemp("seen"))
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


def test_one_json_object_an_image(seen, files):
    assert [prediction["source"] for prediction in seen] == [f"{files / 'three.npy'}[{i}]" for i in range(3)]
    for answer in seen:
        assert answer.keys() == {"source", "label", "confidence"}
        assert re.fullmatch(r"\d", answer["label"])
        assert 0.1 <= answer["confidence"] <= 1.0


def test_confidence_is_the_softmax_of_the_model(seen, trained, files):
    from burn_torch import Device, Tensor
    from burn_torch.cli.recipes.digits import RECIPE, DigitsConfig

    model = RECIPE.model(DigitsConfig.load(trained / "config.json"), Device.cpu()).load_file(
        trained / "model.safetensors"
    )
    images = (np.load(files / "three.npy").astype(np.float32) - np.float32(RECIPE.mean)) / np.float32(RECIPE.std)
    logits = model.forward(Tensor.from_data(images, Device.cpu())).into_data().values.astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert [int(prediction["label"]) for prediction in seen] == list(shares.argmax(1))
    # float32 over 10 classes: a few units in the last place
    np.testing.assert_allclose([prediction["confidence"] for prediction in seen], shares.max(1), rtol=1e-6)


@pytest.mark.parametrize("name", ["one.npy", "one.pgm", "plain.pgm", "two.csv", "three-ubyte"])
def test_formats_agree(name, burn, trained, files, seen, tmp_path):
    done = burn("predict", trained, files / name, "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    predictions = [json.loads(line) for line in done.out.splitlines()]
    assert [one["label"] for one in predictions] == [one["label"] for one in seen[: len(predictions)]]
    # other batch sizes add up in another order
    np.testing.assert_allclose(
        [one["confidence"] for one in predictions], [one["confidence"] for one in seen[: len(predictions)]], rtol=1e-5
    )
    one = len(predictions) == 1
    assert predictions[0]["source"] == str(files / name) + ("" if one else "[0]")


def test_png_and_jpg_with_pillow(burn, trained, files, seen, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="reading .png needs Pillow")
    pixels = np.round(np.load(files / "three.npy")[0] * (255 / 16)).astype(np.uint8)
    image.fromarray(pixels).convert("RGB").save(tmp_path / "one.png")
    done = burn("predict", trained, "one.png", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["label"] == seen[0]["label"]


def test_lines_for_people(burn, trained, files, seen, tmp_path):
    done = burn("predict", trained, files / "one.npy", files / "two.csv", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    expected = [files / "one.npy", f"{files / 'two.csv'}[0]", f"{files / 'two.csv'}[1]"]
    lines = [f"{source}: {prediction['label']} ({prediction['confidence']:.1%})" for source, prediction in
             zip(expected, [seen[0], *seen[:2]], strict=True)]  # fmt: skip
    assert done.out.splitlines() == lines


def test_dark_strokes_on_a_light_ground_are_reported(burn, trained, files, tmp_path):
    images = np.load(files / "three.npy")
    np.save(tmp_path / "dark.npy", images.max() - images)
    done = burn("predict", trained, tmp_path / "dark.npy", cwd=tmp_path)
    assert done.code == 0
    assert re.search(r"warning: .*dark\.npy: 3 images with a light border", done.err)


@pytest.mark.parametrize("setting", ["num_epochs=3", "optimizer.lr=0.1"])
def test_settings_of_training_are_refused(burn, trained, files, tmp_path, setting):
    done = burn("predict", trained, files / "three.npy", "--set", setting, cwd=tmp_path)
    assert done.code == 2
    assert re.search(
        rf"(?s)predict takes no settings of training.*given: +--set {setting}.*expected: .*mend: ", done.err
    )


def test_more_images_than_one_batch(burn, trained, files, seen, tmp_path):
    images = np.load(files / "three.npy")
    np.save(tmp_path / "many.npy", np.concatenate([images] * 100))
    assert PREDICT_BATCH < 300
    done = burn("predict", trained, "many.npy", "--json", cwd=tmp_path)
    predictions = [json.loads(line) for line in done.out.splitlines()]
    assert [one["source"] for one in predictions] == [f"many.npy[{i}]" for i in range(300)]
    assert [one["label"] for one in predictions] == [one["label"] for one in seen] * 100


def test_predictions_on_numpy(burn, trained, files, seen, tmp_path):
    done = burn("predict", trained, files / "three.npy", "--devices", "ndarray", "--json", cwd=tmp_path)
    predictions = [json.loads(line) for line in done.out.splitlines()]
    assert [one["label"] for one in predictions] == [one["label"] for one in seen]
