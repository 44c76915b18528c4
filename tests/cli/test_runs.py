"""`burn-torch runs` and `burn-torch report`: what they print and write, and what they refuse."""

import csv
import json
import re
import shutil

import pytest

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@pytest.fixture(scope="module")
def two(trained, tmp_path_factory):
    """A folder with the run, a copy with other settings that was killed, and one whose events are damaged."""
    folder = tmp_path_factory.mktemp("two")
    shutil.copytree(trained, folder / "deep" / "first")
    shutil.copytree(trained, folder / "second")
    (folder / "second" / "result.json").unlink()
    events = folder / "second" / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    first = json.loads(lines[0])
    first["config"] = first["config"].replace('"hidden": 16', '"hidden": 17')
    first["t"] += 100.0
    kept = [line for line in lines[1:] if '"run_ended"' not in line]
    events.write_text("".join([json.dumps(first) + "\n", *kept]))
    (folder / "broken").mkdir()
    (folder / "broken" / "events.jsonl").write_bytes(bytes(range(256)) * 40)
    return folder


def test_list(burn, two, tmp_path):
    done = burn("runs", "list", two, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert CONTROL.search(done.out) is None
    head, broken, first, second = done.out.splitlines()
    assert head.split() == ["RUN", "STATUS", "EPOCH", "STARTED", "TIME", "BEST"]
    assert re.match(
        rf"{two}/deep/first +completed +2/2 +\d{{4}}-\d\d-\d\d \d\d:\d\d +\S.*Accuracy \d+\.\d\d %, Loss ", first
    )
    assert re.match(rf"{two}/second +dead +2/2", second)
    assert re.match(rf"{two}/broken +dead", broken)


def test_list_as_json(burn, two, trained, tmp_path):
    done = burn("runs", "list", two / "deep", "--json", cwd=tmp_path)
    (run,) = json.loads(done.out)
    result = json.loads((trained / "result.json").read_text())
    assert run["status"] == "completed"
    assert [value for _, value in run["metrics"]["Loss"]["valid"]["epochs"]] == result["metrics"]["valid"]["Loss"]
    assert run["metrics"]["Accuracy"]["valid"]["best"] == max(result["metrics"]["valid"]["Accuracy"])
    assert run["checkpoints"] == ["epoch-1.safetensors", "epoch-2.safetensors"]


def test_list_of_nothing(burn, tmp_path):
    done = burn("runs", "list", cwd=tmp_path)
    assert (done.code, done.out) == (0, "no runs below artifacts\n")
    done = burn("runs", "list", tmp_path, cwd=tmp_path)
    assert done.code == 2
    assert re.match(r"error: there are no runs\n  given: .*\n  expected: .*\n  mend: ", done.err)


def test_compare(burn, two, tmp_path):
    done = burn("runs", "compare", two / "deep" / "first", two / "second", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    rows = {re.split(r"  +", line)[0]: re.split(r"  +", line)[1:] for line in done.out.splitlines()}
    assert rows["status"] == ["completed", "dead"]
    assert rows["hidden"] == ["16", "17"]
    assert re.fullmatch(r"\S+ in epoch \d", rows["Loss valid, best"][0])
    assert rows["Loss valid, best"][0] == rows["Loss valid, best"][1]
    assert "channels" not in rows
    done = burn("runs", "compare", two / "deep" / "first", two / "second", "--json", cwd=tmp_path)
    assert json.loads(done.out)["differences"] == {"hidden": ["16", "17"]}


@pytest.mark.parametrize(("options", "letters"), [([], "⠁-⣿"), (["--ascii"], "*")])
def test_plot(burn, trained, tmp_path, options, letters):
    done = burn(
        "runs", "plot", trained, "--metric", "loss", "--width", 60, "--height", 10, *options, cwd=tmp_path,
        PYTHONIOENCODING="utf-8",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    title, *rows = done.out.rstrip("\n").split("\n")
    assert title == f"{trained}: Loss over items"
    assert len(rows) == 10
    assert max(map(len, rows)) <= 60
    assert CONTROL.search(done.out) is None
    assert re.search(f"[{letters}]", "".join(rows[1:-2]))
    assert "train" in rows[0]
    assert "valid" in rows[0]


def test_plot_as_json_has_every_batch(burn, trained, tmp_path):
    done = burn("runs", "plot", trained, "--json", cwd=tmp_path)
    (curves,) = json.loads(done.out).values()
    logs = [(trained / "train" / f"epoch-{epoch}" / "Loss.log").read_text().split() for epoch in (1, 2)]
    assert [y for _, y in curves["Loss"]["train"]] == [float(text) for log in logs for text in log]


def test_a_metric_that_nobody_measures(burn, trained, tmp_path):
    done = burn("runs", "plot", trained, "--metric", "Los", cwd=tmp_path)
    assert done.code == 2
    assert re.match(
        r"error: no run measures 'Los'\n  given: .*\n  expected: .*Loss.*\n  mend: .*did you mean Loss\?", done.err
    )


# -- report --------------------------------------------------------------------------------------------------
def test_report(burn, trained, tree, tmp_path):
    before = tree(trained)
    done = burn("report", trained, "--html", "run.html", "--csv", "run.csv", cwd=tmp_path)
    assert (done.code, done.err, done.out) == (0, "", "run.html\nrun.csv\n")
    page = (tmp_path / "run.html").read_text()
    assert page.count("<svg") == 2
    assert "completed" in page
    rows = list(csv.DictReader((tmp_path / "run.csv").read_text().splitlines()))
    epochs = [
        float(row["value"]) for row in rows if (row["metric"], row["split"], row["iteration"]) == ("Loss", "valid", "")
    ]
    assert epochs == json.loads((trained / "result.json").read_text())["metrics"]["valid"]["Loss"]
    assert tree(trained) == before


def test_report_on_standard_output(burn, trained, tmp_path):
    done = burn("report", trained, "--csv", "-", cwd=tmp_path)
    assert done.out.startswith("time,split,epoch,iteration,items,metric,value\n")
    assert list(tmp_path.iterdir()) == []


def test_report_for_tensorboard(burn, trained, tmp_path):
    pytest.importorskip("tensorboard")
    done = burn("report", trained, "--tensorboard", "tb", cwd=tmp_path)
    assert (done.code, done.err, done.out) == (0, "", "tb\n")
    assert len(list(tmp_path.glob("tb/*/events.out.tfevents.*"))) >= 2


@pytest.mark.parametrize(
    ("options", "code", "what"),
    [
        ((), 2, "nothing to write is named"),
        (("--html", "none/run.html"), 2, "the report cannot be written"),
        (("--csv", "."), 2, "the report cannot be written"),
        (("--htm", "x"), 2, "burn-torch report: there is no option --htm"),
    ],
)
def test_report_refuses(burn, trained, tmp_path, options, code, what):
    done = burn("report", trained, *options, cwd=tmp_path)
    assert (done.code, done.out) == (code, "")
    assert re.match(rf"error: {re.escape(what)}\n  given: .*\n  expected: .*\n(.*\n)*  mend: ", done.err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("report", "--csv", "-"), ("runs", "compare"), ("runs", "plot")])
def test_where_there_is_no_run(burn, tmp_path, command):
    done = burn(*command, tmp_path / "nowhere", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert re.match(r"error: there (is|are) no runs?\n  given: .*nowhere.*\n  expected: .*\n  mend: ", done.err)


@pytest.mark.parametrize(
    "command", [("report", "--html", "x.html"), ("runs", "compare"), ("runs", "plot"), ("runs", "list")]
)
def test_damaged_events_never_harm(burn, two, tmp_path, command):
    done = burn(*command, two / "broken", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")


def test_events_of_a_newer_version(burn, trained, tmp_path):
    copy = shutil.copytree(trained, tmp_path / "run")
    events = copy / "events.jsonl"
    events.write_text(events.read_text().replace('"v":1', '"v":9'))
    done = burn("report", copy, "--csv", "-", cwd=tmp_path)
    assert (done.code, done.out) == (3, "")
    assert re.match(r"error: these events are of a newer version.*\n  given: .*9\n  expected: .*\n  mend: ", done.err)
    assert "unreadable" in burn("runs", "list", copy, cwd=tmp_path).out
