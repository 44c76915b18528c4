"""Each recipe on small data of its own: trains, keeps what it learnt of the data, is evaluated and predicts."""

from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pytest


def run(burn, cwd, *words, code=0):
    done = burn(*words, cwd=cwd)
    assert done.code == code, done.out + done.err
    assert (done.err == "") == (code == 0)
    return done


def valid(folder, metric):
    return json.loads((folder / "result.json").read_text())["metrics"]["valid"][metric][-1]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Data sets in which there is something to learn."""
    root = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(3)
    _write_housing(root / "california-housing", random)
    _write_news(root / "ag-news", random)
    text = root / "tiny-shakespeare"
    text.mkdir()
    (text / "input.txt").write_text("the cat sat on the mat. the dog sat on the log. " * 60)
    for name, level in (("dark", 40), ("light", 200)):
        folder = root / "pictures" / name
        folder.mkdir(parents=True)
        for number in range(24):
            side = 10 + number % 3
            pixels = np.clip(random.normal(level, 20, (side, side + 2)), 0, 255)
            np.save(folder / f"{number}.npy", pixels.astype(np.uint8))
    return root


def _write_housing(folder, random):
    folder.mkdir()
    rows = ["longitude,rooms,ocean_proximity,median_house_value"]
    for number in range(160):
        x, near = random.normal(), number % 2
        rooms = "" if number % 10 == 0 else f"{random.normal(50, 10):.3f}"
        rows.append(f"{x:.4f},{rooms},{'NEAR BAY' if near else 'INLAND'},{200_000 + 30_000 * x + 50_000 * near:.0f}")
    (folder / "housing.csv").write_text("\n".join(rows) + "\n")


def _write_news(folder, random):
    folder.mkdir()
    words = [["goal", "match", "team"], ["stocks", "bank", "profit"]]
    (folder / "classes.txt").write_text("Sports\nBusiness\n")
    for name, count in (("train.csv.gz", 120), ("test.csv.gz", 40)):
        rows = []
        for number in range(count):
            label = number % 2
            text = " ".join(random.choice([*words[label], "the", "of", "today"]) for _ in range(8))
            rows.append(f'"{label + 1}","{text}","a ""quoted"" {words[label][number % 3]}"\n')
        (folder / name).write_bytes(gzip.compress("".join(rows).encode()))


def test_regression(burn, data, tmp_path):
    folder = data / "california-housing"
    run(burn, tmp_path, "train", "regression", "--data", folder, "--epochs", 12, "--batch-size", 32,
        "--set", "hidden=32", "--artifact-dir", "run")  # fmt: skip
    assert valid(tmp_path / "run", "R2") > 60
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert [column["name"] for column in config["columns"]] == ["longitude", "rooms", "ocean_proximity"]
    assert config["columns"][1]["has_empty"] is True
    assert config["columns"][2]["words"] == ["INLAND", "NEAR BAY"]
    evaluated = json.loads(run(burn, tmp_path, "evaluate", "run", "--json").out)
    result = json.loads((tmp_path / "run/result.json").read_text())["metrics"]["valid"]
    assert evaluated["metrics"]["RMSE"] == pytest.approx(result["RMSE"][-1], rel=1e-6)
    other = run(burn, tmp_path, "evaluate", "run", "--data", folder / "housing.csv", "--json")
    assert (json.loads(other.out)["name"], json.loads(other.out)["items"]) == ("given", 160)
    rmse = 50_000  # of a target whose deviation is about 40,000: far off would be a wrong scale
    rows = "rooms,longitude,ocean_proximity,id\n50,1,NEAR BAY,7\n,-1,INLAND,8\n50,0,ON MARS,9\n"
    (tmp_path / "new.csv").write_text(rows)  # other order, one more column, no target, a word that is new
    lines = [json.loads(line) for line in run(burn, tmp_path, "predict", "run", "new.csv", "--json").out.splitlines()]
    assert [line["source"] for line in lines] == ["new.csv:2", "new.csv:3", "new.csv:4"]
    high, low, _ = (line["median_house_value"] for line in lines)
    assert abs(high - 280_000) < rmse
    assert abs(low - 170_000) < rmse
    assert high > low
    (tmp_path / "bad.csv").write_text("longitude,rooms,ocean_proximity\n1,many,INLAND\n")
    done = run(burn, tmp_path, "predict", "run", "bad.csv", code=3)
    assert "given:    line 2: rooms = 'many'" in done.err
    (tmp_path / "bad.csv").write_text("longitude,room,ocean_proximity\n1,2,INLAND\n")
    done = run(burn, tmp_path, "predict", "run", "bad.csv", code=3)
    assert "without rooms" in done.err
    assert "is room meant by rooms?" in done.err


def test_csv_table_of_classes(burn, data, tmp_path):
    table = data / "california-housing" / "housing.csv"
    words = ["train", "csv-table", "--data", table, "--artifact-dir", "run", "--epochs", 6, "--set", "hidden=16"]
    done = run(burn, tmp_path, *words, "--set", "target=ocean_proximty", code=2)
    assert "did you mean ocean_proximity?" in done.err
    done = run(burn, tmp_path, *words, code=2)
    assert "the column to predict is not named" in done.err
    run(burn, tmp_path, *words, "--set", "target=ocean_proximity", "--set", "ignore=rooms", "--batch-size", 16)
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert (config["task"], config["predicts"]["words"]) == ("classification", ["INLAND", "NEAR BAY"])
    assert valid(tmp_path / "run", "Accuracy") > 80
    done = run(burn, tmp_path, "predict", "run", table)
    assert re.match(r".*housing.csv:2: INLAND|NEAR BAY \([\d.]+%\)\n", done.out)
    assert len(done.out.splitlines()) == 160


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1\n", "line 2: 1 cells"),
        ("a,a\n1,2\n", "a more than once"),
        ("", "an empty file"),
        ("a,b\n1,2\n", "1 row, 2 columns"),
        ('a,b\n"1,2\n', "line 2: unexpected end of data"),
        ("a,b\n1,2\n2,\n3,4\n4,5\n", "line 3: b = ''"),
        ("a,b\n,1\n,2\n,3\n", "the column a cannot be read"),
    ],
)
def test_tables_that_cannot_be_read(text, says, burn, tmp_path):
    (tmp_path / "table.csv").write_text(text)
    words = ["--set", "target=b", "--set", "task=regression"]
    done = run(burn, tmp_path, "train", "csv-table", "--data", "table.csv", *words, code=3)
    assert says in done.err
    assert not (tmp_path / "artifacts").exists()


def test_text_classification(burn, data, tmp_path):
    words = [
        "--epochs",
        8,
        "--set",
        "optimizer.lr=0.02",
        "--set",
        "buckets=4096",
        "--set",
        "d_model=8",
        "--batch-size",
        16,
    ]
    done = burn(
        "train", "text-classification", *words, "--artifact-dir", "run", cwd=tmp_path, BURN_TORCH_DATA=str(data)
    )
    assert (done.code, done.err) == (0, "")
    assert valid(tmp_path / "run", "Accuracy") == 100
    origins = json.loads((tmp_path / "run/config.origins.json").read_text())["origins"]
    assert (origins["classes"], origins["data_dir"], origins["d_model"]) == ("data", "data", "--set")
    texts = ["The TEAM won the match!", "Bank profit &lt;b&gt; up", ""]
    done = run(burn, tmp_path, "predict", "run", *texts, "--json")
    predictions = [json.loads(line) for line in done.out.splitlines()]
    assert [one["label"] for one in predictions[:2]] == ["Sports", "Business"]
    assert [one["source"] for one in predictions] == texts
    run(burn, tmp_path, "evaluate", "run")  # where the data was is kept


def test_rows_of_texts_that_are_damaged(burn, data, tmp_path):
    (tmp_path / "classes.txt").write_text("Sports\nBusiness\n")
    (tmp_path / "test.csv").write_text('"1","a"\n')
    (tmp_path / "train.csv").write_text('"1","a"\n"3","b"\n')
    done = run(burn, tmp_path, "train", "text-classification", "--data", ".", code=3)
    assert "given:    line 2: 3, b\n  expected: a class of 1 to 2" in done.err
    (tmp_path / "train.csv").write_bytes(b'"1","\xff"\n')
    done = run(burn, tmp_path, "train", "text-classification", "--data", ".", code=3)
    assert "expected: a text file in UTF-8" in done.err


@pytest.mark.parametrize("tokens", ["bytes", "bpe"])
def test_text_generation(tokens, burn, data, tmp_path):
    words = ["--set", f"tokens={tokens}", "--set", "vocabulary=270", "--set", "d_model=16", "--set", "n_heads=2"]
    words += ["--set", "n_layers=1", "--set", "context=16", "--batch-size", 8, "--epochs", 2, "--artifact-dir", "run"]
    done = run(burn, tmp_path, "train", "text-generation", "--data", data / "tiny-shakespeare", *words)
    bits = [float(figure) for figure in re.findall(r"valid .* Bits per Byte ([\d.]+)", done.out)]
    assert bits[-1] < bits[0] < 8
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert (config["merges"] is None) == (tokens == "bytes")
    again = [run(burn, tmp_path, "predict", "run", "the ", "--set", "length=30").out for _ in range(2)]
    assert again[0] == again[1]
    assert again[0].startswith("the ")
    other = run(burn, tmp_path, "predict", "run", "the ", "--set", "length=30", "--set", "seed=9", "--json")
    generated = json.loads(other.out)
    assert generated["source"] == "the "
    if tokens == "bytes":
        assert len(generated["text"].encode(errors="replace")) >= 34
    evaluated = json.loads(run(burn, tmp_path, "evaluate", "run", "--data", data / "tiny-shakespeare", "--json").out)
    assert evaluated["metrics"]["Bits per Byte"] < 8
    done = run(burn, tmp_path, "predict", "run", "x", "--set", "temperature=0", code=2)
    assert "temperature = 0.0" in done.err


def test_image_folder(burn, data, tmp_path):
    words = ["--set", "size=8", "--set", "channels=2", "--batch-size", 8, "--epochs", 4, "--artifact-dir", "run"]
    run(burn, tmp_path, "train", "image-folder", "--data", data / "pictures", *words)
    assert valid(tmp_path / "run", "Accuracy") == 100
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["classes"] == ["dark", "light"]
    assert 90 < 255 * config["mean"] < 150  # about half of the training pictures are dark
    done = run(burn, tmp_path, "predict", "run", data / "pictures" / "light")
    assert len(re.findall(r"npy: light \(", done.out)) == 24
    done = run(burn, tmp_path, "evaluate", "run", "--data", data / "pictures", "--json")
    assert json.loads(done.out)["items"] == 48
    done = run(burn, tmp_path, "train", "image-folder", "--data", data / "pictures" / "light", code=3)
    assert "there are no two classes" in done.err
    done = run(burn, tmp_path, "train", "image-folder", code=3)
    assert "given:    no --data" in done.err
