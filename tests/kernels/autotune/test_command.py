"""The command: measure, report, export, import; and what it says where there is no GPU."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import burn_kernels
from burn_kernels import KernelArgumentError, KernelDeviceError
from burn_kernels.autotune import BundleError, bundle, report, shipped, tune, using, warmup
from burn_kernels.autotune.bundle import export_bundle, import_bundle
from burn_kernels.autotune.command import main
from burn_kernels.autotune.selection import Selector, selecting
from burn_kernels.autotune.store import FILE, Store
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.launch import H200

CONFIG = "block=256 warps=8"


@pytest.fixture
def selector(fake: Any, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Selector]:
    """A selector with a store on disk and one kernel, as if torch saw a GPU."""
    fake_tunable = fake.tunable()
    for module in (report, warmup):
        monkeypatch.setattr(module, "TUNABLES", {"double": fake_tunable})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"Fake {index}")
    with selecting(fake.selector(Store(own_cache / FILE))) as selector_in_use:
        yield selector_in_use


def test_tune_shows_progress_and_report_shows_the_result(
    fake: Any, selector: Selector, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.times = {fake.configs[0]: 2.0, fake.configs[1]: 1.5}
    assert main(["tune"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"[1/2] double rows<=8 cols=4 float32 packed align=16: {CONFIG}, 1.0000 ms, default 2.0000 ms"
    assert lines[1].startswith("[2/2] double rows<=128 cols=4 ")
    assert re.fullmatch(r"2 of 2 keys measured in \d+ s; python -m burn_kernels report shows them", lines[2])

    assert main(["report"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("devices: Fake 0\nlevel: cached\nstore: ")
    assert "double rows<=8 cols=4 float32 packed align=16 on Fake 1 sm_90 x132\n" in out
    assert f"  * {CONFIG:<60}    1.0000 ms   1.00x\n" in out
    assert f"    {'block=64 warps=4':<60}    2.0000 ms   2.00x\n" in out


def test_a_profile_says_where_the_time_went(
    fake: Any, selector: Selector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = fake.settle

    def slow() -> None:
        time.sleep(0.02)
        settle()

    monkeypatch.setattr(fake, "settle", slow)
    assert main(["tune", "--shapes", "16x8", "--workers", "0", "--profile", str(tmp_path / "where.txt")]) == 0
    text = (tmp_path / "where.txt").read_text()
    assert re.search(r"^ +\d+\.\d\d s double$", text, re.MULTILINE)
    assert "double: burn_kernels.autotune.tuner._measure" in text
    assert ".slow:" in text.split("innermost:")[1]


def test_tune_again_measures_what_is_there_and_tune_does_not(
    fake: Any, selector: Selector, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "--only", "dou", "--shapes", "16x8"]) == 0
    count = len(fake.ran)
    assert main(["tune", "--shapes", "16x8,9x8"]) == 0
    assert len(fake.ran) == count
    assert "0 of 0 keys" in capsys.readouterr().out
    fake.times = {fake.configs[2]: 5.0}
    assert main(["tune", "--shapes", "16x8", "--again", "--dtype", "float32", "--device", "cuda:0"]) == 0
    assert len(fake.ran) > count
    (slow,) = [t.median_ms for t in selector.store.all_timings() if t.candidate == CONFIG]
    assert slow == 5.0


def test_parts_are_all_keys_and_none_twice(
    fake: Any, selector: Selector, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_tunable = fake.tunable()
    monkeypatch.setattr(
        warmup, "TUNABLES", {"double": fake_tunable, "other": dataclasses.replace(fake_tunable, name="other")}
    )
    for part in range(3):
        assert main(["tune", "--only", "oth,dou", "--part", f"{part}/3"]) == 0
    lines = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert [line.split(" cols")[0] for line in lines] == [  # in the order that was asked for, every third of it
        *("other rows<=8", "double rows<=128", "other rows<=128", "double rows<=8")
    ]
    with pytest.raises(SystemExit):
        main(["tune", "--part", "3/3"])
    assert "'3/3' is not I/N" in capsys.readouterr().err
    with pytest.raises(KernelArgumentError, match="no such op"):
        tune("double,triple")


def test_tuning_is_the_same_whatever_level_and_lockfile_hold(fake: Any, selector: Selector, tmp_path: Path) -> None:
    from burn_kernels.autotune import lock

    with using("off"), lock(tmp_path / "autotune.lock") as held:
        measurements = tune("double", [(8, 4)])
        assert held.pins == {}
    assert [measured.why_not for measured in measurements] == [""]
    assert len(selector.store.all_timings()) == 3


def test_disqualified_candidates_are_shown_with_the_reason(
    fake: Any, selector: Selector, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.faults[fake.configs[1]] = "past"
    with pytest.warns(RuntimeWarning, match="disqualified"):
        assert main(["tune", "--shapes", "8x4"]) == 0
    reason = "block=128 warps=4: writes past the end of allocation 0"
    assert f"    disqualified {reason}\n" in capsys.readouterr().out
    main(["report"])
    assert f"  ! {reason.replace(': ', ': disqualified: ')}\n" in capsys.readouterr().out
    main(["report", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert data["entries"][0]["disqualified"] == {
        "block=128 warps=4": "disqualified: writes past the end of allocation 0"
    }
    assert data["entries"][0]["current"] is True


def test_a_key_without_a_right_candidate_does_not_end_the_run(
    fake: Any, selector: Selector, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.faults = dict.fromkeys(fake.configs, "value")
    with pytest.warns(RuntimeWarning, match="disqualified"):
        assert main(["tune"]) == 1
    out = capsys.readouterr().out
    assert "[2/2] double rows<=128 cols=4 float32 packed align=16: not kept: given:    double rows<=128" in out
    assert "0 of 2 keys measured" in out


def test_the_budget_is_kept(fake: Any, selector: Selector, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--budget-s", "0"]) == 1
    assert "not kept: the process's 0 s for measurements are spent" in capsys.readouterr().out


def test_rows_of_another_source_are_shown_as_not_used(
    selector: Selector, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["tune", "--shapes", "8x4"])
    monkeypatch.setattr(report, "TUNABLES", {})
    capsys.readouterr()
    main(["report"])
    assert "x132   (not used: torch " in capsys.readouterr().out


def test_ship_says_what_it_leaves_out_and_report_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], own_cache: Path
) -> None:
    op = TUNABLES["softmax"]
    facts = [op.problems(8192, cols, torch.bfloat16)[0] for cols in (4096, 8192)]
    row: dict[str, Any] = {"device": "NVIDIA H200 sm_90 x132", "software": "torch 2.11", "samples_ms": [0.5]}
    row |= {"median_ms": 0.5, "eliminated": False, "measured_at": "2026-11-22T10:00:00"}
    fresh, old = (row | {"kernel": kernel, "key": op.key(one), "candidate": "", "config": dataclasses.asdict(config)}
                  for kernel, one in ((op.kernel, facts[0]), ("0" * 16, facts[1]))
                  for config in op.candidates(one, H200)[1:2])  # fmt: skip
    file, table = tmp_path / "timings.json", tmp_path / "shipped.json"
    default = fresh | {"config": dataclasses.asdict(op.candidates(facts[0], H200)[0]), "samples_ms": [0.9]}
    export = {"format": "burn_kernels.timings", "version": 1, "timings": [fresh, default, old], "faults": []}
    file.write_text(json.dumps(export), encoding="utf-8")
    monkeypatch.setattr(shipped, "FILE", table)
    shipped.load.cache_clear()
    try:
        assert main(["ship", str(file)]) == 0
        out = capsys.readouterr().out
        assert out.startswith("1 problems of softmax written to shipped.json; ")
        assert f"left out, since their kernels have changed: 1 keys, {op.key(facts[1])}\n" in out
        with selecting(Selector(Store(None))):
            main(["report"])
            assert "shipped table: " not in capsys.readouterr().out
            table.write_text(table.read_text(encoding="utf-8").replace(op.kernel, "0" * 16), encoding="utf-8")
            shipped.load.cache_clear()
            main(["report"])
        assert "shipped table: rows of softmax are refused, since" in capsys.readouterr().out
    finally:
        shipped.load.cache_clear()


@pytest.mark.parametrize(
    "arguments", [["tune", "--shapes", "8"], ["tune", "--shapes", "8x0"], ["tune", "--device", "gpu"], ["hum"], []]
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m burn_kernels" in capsys.readouterr().err


def test_an_op_that_is_not_there(selector: Selector, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KernelArgumentError, match=r"no such op\n  given:    'hum'\n  expected: .*double\n  mend: "):
        tune("hum")
    assert main(["tune", "--only", "hum"]) == 1
    assert "autotune: no such op\n  given:    'hum'" in capsys.readouterr().err


# -- without a GPU -----------------------------------------------------------------------------------
def test_without_a_gpu_tune_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        KernelDeviceError, match=r"no such GPU to measure on\n  given:    device 0.*\n  exp.*\n  mend: "
    ):
        tune()


def command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kernels = str(Path(burn_kernels.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": kernels, "CUDA_VISIBLE_DEVICES": ""} | variables
    return subprocess.run(
        [sys.executable, "-m", "burn_kernels", *arguments], capture_output=True, text=True, check=False, env=environment
    )


def test_the_command_itself_without_a_gpu(own_cache: Path) -> None:
    process = command("report")
    assert process.returncode == 0, process.stderr
    said = [line for line in process.stdout.splitlines() if not line.startswith("shipped table: ")]
    assert said == [
        "devices: no GPU; CPU tensors use the references, which have no configs",
        "level: cached",
        f"store: {own_cache / FILE}",
        "lockfile: none",
        "nothing was measured: choices are the shipped table's, the cost model's and the defaults",
    ]
    assert not own_cache.exists()  # reading makes no file
    process = command("report", BURN_KERNELS_AUTOTUNE="fast")
    assert process.returncode == 1
    assert "given:    BURN_KERNELS_AUTOTUNE='fast'" in process.stderr


def test_where_there_is_no_gpu_the_command_has_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert main(["tune"]) == 3
    out, printed = capsys.readouterr()
    assert out == ""
    assert printed.startswith("autotune: there is no such GPU to measure on\n  given:    device 0; torch finds 0")


# -- bundles -----------------------------------------------------------------------------------------
def test_timings_travel(fake: Any, selector: Selector, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.faults[fake.configs[1]] = "value"
    with pytest.warns(RuntimeWarning, match="disqualified"):
        main(["tune", "--shapes", "8x4"])
    file = tmp_path / "timings.json"
    capsys.readouterr()
    assert main(["export", str(file)]) == 0
    assert capsys.readouterr().out == f"3 rows written to {file}\n"
    other = Store(tmp_path / "other" / FILE)
    with selecting(fake.selector(other)):
        assert main(["import", str(file)]) == 0
        assert main(["import", str(file)]) == 0
    assert capsys.readouterr().out == f"3 new rows from {file}\n0 new rows from {file}\n"
    assert other.all_timings() == selector.store.all_timings()
    assert other.all_faults() == selector.store.all_faults()


def test_importing_changes_no_row_that_is_there(fake: Any, selector: Selector, tmp_path: Path) -> None:
    tune("double", [(8, 4)])
    file = tmp_path / "timings.json"
    export_bundle(selector.store, file)
    data = json.loads(file.read_text(encoding="utf-8"))
    data["timings"][0]["median_ms"] = 77.0
    file.write_text(json.dumps(data), encoding="utf-8")
    before = selector.store.all_timings()
    assert import_bundle(selector.store, file) == 0
    assert selector.store.all_timings() == before


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda d: d.pop("faults"), "other fields than format, version, timings, faults"),
        (lambda d: d.update(version=9), "version 9"),
        (lambda d: d.update(timings={}), "timings is no list"),
        (lambda d: d["timings"][0].pop("key"), r"timings\[0\]: other fields"),
        (lambda d: d["timings"][0].update(config={"block": "__import__('os')"}), r"timings\[0\].config"),
        (lambda d: d["timings"][0].update(samples_ms=[float("nan")]), r"timings\[0\].samples_ms"),
        (lambda d: d["timings"][0].update(median_ms=-1.0), r"timings\[0\].median_ms"),
        (lambda d: d["timings"][1].update(eliminated=1, key=3), r"timings\[1\].key: 3; timings\[1\].eliminated: 1"),
        (lambda d: d.update(faults=[{"x": 1}]), r"faults\[0\]: other fields"),
    ],
)
def test_a_bundle_is_read_strictly_or_not_at_all(
    fake: Any, selector: Selector, tmp_path: Path, change: Any, fault: str
) -> None:
    tune("double", [(8, 4)])
    file = tmp_path / "timings.json"
    export_bundle(selector.store, file)
    data = json.loads(file.read_text(encoding="utf-8"))
    change(data)
    file.write_text(json.dumps(data), encoding="utf-8")
    store = Store(None)
    with pytest.raises(BundleError, match=rf"cannot be read\n  given:    .*{fault}.*\n  expected: .*\n  mend: "):
        import_bundle(store, file)
    assert store.all_timings() == []


def test_files_that_are_not_there_too_large_or_no_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BundleError, match="No such file"):
        import_bundle(Store(None), tmp_path / "absent.json")
    with pytest.raises(BundleError, match=r"cannot be written\n  given: .*\n  expected: .*\n  mend: "):
        export_bundle(Store(None), tmp_path / "absent" / "timings.json")
    file = tmp_path / "timings.json"
    file.write_text("{", encoding="utf-8")
    with pytest.raises(BundleError, match="cannot be read"):
        import_bundle(Store(None), file)
    monkeypatch.setattr(bundle, "MAX_BYTES", 0)
    with pytest.raises(BundleError, match=r"given: .*1 bytes"):
        import_bundle(Store(None), file)
