"""The shipped table and the cost model: fresh, legal, and near the best of what was measured."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from burn_kernels.autotune import shipped
from burn_kernels.autotune.cost import MARGIN, Work, choice, figures, predict
from burn_kernels.autotune.errors import BundleError
from burn_kernels.autotune.key import Device, Facts
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.launch import A100, H200, MI300X, Machine

DATA = Path(__file__).resolve().parents[3] / "benchmarks" / "data"
GPU = Device("NVIDIA H200", H200)
ROWS = shipped.load()
MISSES = json.loads((DATA / "first-choice-misses.json").read_text(encoding="utf-8"))
"""The output of benchmarks/first_choice.py --misses: keys for which only the table knows a fast config."""
NAMES = [f"{row['op']}-{'x'.join(map(str, row['free'] + row['exact']))}-{row['flags']}" for row in ROWS]


def facts_of(row: dict[str, Any]) -> Facts:
    dtype = torch.bfloat16 if row["itemsize"] == 2 else torch.float32
    return Facts(tuple(row["free"]), tuple(row["exact"]), dtype, row["align"], row["layout"], row["flags"])


def test_the_table_is_what_the_measured_rows_make() -> None:
    table = json.loads(shipped.FILE.read_text(encoding="utf-8"))
    names = [source["file"] for source in table["measured"]]
    sources = {name: json.loads((DATA / name).read_text(encoding="utf-8")) for name in names}
    rebuilt = json.loads(shipped.written(sources, TUNABLES))
    # a row whose kernels have changed since stays until somebody measures again: it chooses nothing
    old = shipped.refused(TUNABLES)
    stale = f"stale: python -m burn_kernels ship {' '.join(names)}"
    assert rebuilt["measured"] == table["measured"], stale
    assert rebuilt["problems"] == [row for row in ROWS if row not in old], stale


def timing(op: str, key: str, config: Any, ms: float, **changes: Any) -> dict[str, Any]:
    named = shipped._facts(key, TUNABLES)
    kernel = TUNABLES[named[0]].kernel if named is not None else "0" * 16
    row: dict[str, Any] = {"kernel": kernel, "key": key, "device": "NVIDIA H200 sm_90 x132", "software": "torch 2.11"}
    row |= {"candidate": str(config), "config": asdict(config), "samples_ms": [ms], "median_ms": ms}
    return row | {"eliminated": False, "measured_at": "2026-11-22T10:00:00"} | changes


def exported(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"format": "burn_kernels.timings", "version": 1, "timings": list(rows), "faults": []}


def problems(**sources: dict[str, Any]) -> list[dict[str, Any]]:
    return list(json.loads(shipped.written(sources, TUNABLES))["problems"])


def test_what_a_machine_exported_goes_into_the_table() -> None:
    tunable = TUNABLES["activation"]
    facts = Facts((1, 1 << 26), (), torch.bfloat16, flags="gelu")
    first, second, third, fourth = tunable.candidates(facts, H200)
    key = tunable.key(facts)
    gone = replace(first, warps=first.warps * 64)
    rows = [timing("", key, first, 0.5), timing("", key, second, 0.25), timing("", key, gone, 0.1)]
    rows += [timing("", key, third, 0.3), timing("", key, fourth, 0.4)]
    rows.append(timing("", "no_such_op rows<=8 cols=4 float32 packed align=16", second, 0.2))
    rows.append(timing("", key, second, 0.2, device="a machine of another form"))
    rows.append(timing("", key, second, 0.01, kernel="0" * 16))  # of another kernel under the same name
    turned = Facts((8192,), (8, 2, 64, 128), torch.bfloat16)
    one, other = TUNABLES["rope"].candidates(turned, MI300X)[:2]
    mi300 = [timing("", TUNABLES["rope"].key(turned), config, ms, device="AMD Instinct MI300X gfx942 x304")
             for config, ms in ((one, 0.7), (other, 0.6))]  # fmt: skip
    table = json.loads(shipped.written({"timings.json": exported(*rows, *mi300)}, TUNABLES))
    assert table["measured"][0]["file"] == "timings.json"
    assert table["measured"][0]["date"] == "2026-11-22"
    gelu, rope = table["problems"]
    assert (gelu["op"], gelu["free"], gelu["exact"], gelu["flags"]) == (tunable.name, [1, 1 << 26], [], "gelu")
    assert gelu["kernel"] == tunable.kernel
    # the three fastest, and the one that is taken without a table
    assert gelu["configs"] == [
        [0.25, asdict(second)],
        [0.3, asdict(third)],
        [0.4, asdict(fourth)],
        [0.5, asdict(first)],
    ]
    assert (rope["op"], rope["backend"], rope["arch"], rope["exact"]) == ("rope", "hip", "gfx942", [8, 2, 64, 128])
    # a later file counts
    later = exported(timing("", key, first, 0.2), timing("", key, second, 0.1))
    again = problems(timings=exported(*rows, *mi300), later=later)
    assert again[0]["configs"] == [[0.1, asdict(second)], [0.2, asdict(first)]]
    assert again[1] == rope


def test_what_is_chosen_anyway_takes_no_room() -> None:
    tunable = TUNABLES["softmax"]
    facts, more = (Facts((rows,), (4096,), torch.bfloat16) for rows in (8192, 16_384))
    first, second = tunable.candidates(facts, H200)[:2]
    default_wins = [
        timing("", tunable.key(facts), first, 1.0),
        timing("", tunable.key(facts), second, 0.99),
    ]  # within 2 %
    assert problems(a=exported(*default_wins)) == []
    # but beside a row for other counts, which would speak for this one too
    other_wins = [timing("", tunable.key(more), first, 1.0), timing("", tunable.key(more), second, 0.9)]
    assert [row["free"] for row in problems(a=exported(*default_wins, *other_wins))] == [[16_384], [8192]]
    # a default that is younger than the timings may be the fastest: they say nothing of it
    assert problems(a=exported(timing("", tunable.key(more), second, 0.9))) == []
    # of a machine whose figures are not known all is kept
    unknown = [row | {"device": "NVIDIA B900 sm_190 x400"} for row in default_wins]
    assert len(problems(a=exported(*unknown))) == 1


def test_the_table_is_small() -> None:
    assert shipped.FILE.stat().st_size < 128_000
    assert all(len(row["configs"]) <= shipped.MOST_CONFIGS + 1 for row in ROWS)


@pytest.mark.parametrize("name", sorted(TUNABLES))
def test_every_key_is_read_back(name: str) -> None:
    tunable = TUNABLES[name]
    for facts in tunable.problems(8192, 4096, torch.bfloat16):
        read_back = shipped._facts(tunable.key(facts), TUNABLES)
        assert read_back is not None
        assert read_back[0] == name
        assert tunable.key(read_back[1]) == tunable.key(facts)


def test_a_row_of_a_kernel_that_has_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = SOFTMAX | {"kernel": "0" * 16}
    gone = SOFTMAX | {"op": "no such op"}
    monkeypatch.setattr(shipped, "load", lambda: [old, gone, SOFTMAX | {"free": [4096]}])
    assert shipped.refused(TUNABLES) == [old, gone]
    facts = Facts((8192,), (4096,), torch.bfloat16)
    assert shipped.configs(TUNABLES["softmax"], facts, GPU) == [SOFTMAX["configs"][0][1]]  # the one for 4096 rows
    monkeypatch.setattr(shipped, "load", lambda: [old])
    assert shipped.configs(TUNABLES["softmax"], facts, GPU) == []


def test_what_is_no_export_is_said() -> None:
    with pytest.raises(BundleError, match=r"made of exports only\n  given:    rows.json, which is none"):
        shipped.written({"rows.json": {"rows": []}}, TUNABLES)


FRESH = [
    pytest.param(row, id=name)
    for row, name in zip(ROWS, NAMES, strict=True)
    if row["op"] in TUNABLES and row["kernel"] == TUNABLES[row["op"]].kernel
]


@pytest.mark.parametrize("row", FRESH)
def test_each_row_names_candidates_that_the_kernel_has(row: dict[str, Any]) -> None:
    tunable, facts = TUNABLES[row["op"]], facts_of(row)
    configs = [tunable.parse(config) for config in shipped.configs(tunable, facts, GPU)]
    assert configs
    assert set(configs) <= set(tunable.candidates(facts, H200))
    assert all(tunable.supports(config, facts) for config in configs)
    assert [ms for ms, _ in row["configs"]] == sorted(ms for ms, _ in row["configs"])


def test_what_is_missed_without_the_table_is_in_the_table() -> None:
    known = {TUNABLES[row["op"]].key(facts_of(row)) for row in ROWS}
    assert set(MISSES) <= known
    assert all(share < 0.9 for share in MISSES.values())


@pytest.mark.parametrize("row", FRESH)
def test_without_the_table_the_choice_is_at_least_nine_tenths_as_fast(row: dict[str, Any]) -> None:
    tunable, facts = TUNABLES[row["op"]], facts_of(row)
    if tunable.key(facts) in MISSES:
        pytest.skip(f"known to be slower without the table: {MISSES[tunable.key(facts)]} of the fastest")
    measured = {tuple(sorted(config.items())): ms for ms, config in row["configs"]}
    named = tunable.named(facts, H200)
    taken = choice({name: tunable.work(config, facts, H200) for name, config in named.items()}, H200)
    ms = measured.get(tuple(sorted(asdict(named[taken]).items())))
    if ms is None:
        pytest.skip("what is taken without the table came after these timings")
    assert min(measured.values()) / ms >= 0.9


SOFTMAX: dict[str, Any] = {
    "op": "softmax", "kernel": TUNABLES["softmax"].kernel, "backend": "cuda", "arch": 90, "free": [8192],
    "exact": [4096], "itemsize": 2, "align": 16, "layout": "packed", "flags": "",
    "configs": [[0.04, {"rows": 1, "block": 4096, "warps": 8}]],
}  # fmt: skip


def test_the_table_reaches_a_factor_of_four_in_rows_and_not_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "load", lambda: [SOFTMAX])
    tunable = TUNABLES["softmax"]

    def says(**changes: Any) -> bool:
        device = changes.pop("device", GPU)
        return bool(shipped.configs(tunable, Facts((8192,), (4096,), torch.bfloat16)._replace(**changes), device))

    assert says()
    assert says(free=(2048,))
    assert says(free=(32768,))
    assert not says(free=(2047,))
    assert not says(free=(32769,))
    assert not says(exact=(4097,))
    assert says(dtype=torch.float16)
    assert not says(dtype=torch.float32)
    assert not says(align=8)
    assert not says(layout="strided")
    assert not says(flags="x")
    assert says(device=Device("NVIDIA H100", H200))
    assert not says(device=Device("NVIDIA A100", A100))


def test_the_nearest_row_count_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    head = SOFTMAX
    near = head | {"free": [4096], "configs": [[1.0, {"rows": 9, "block": 9, "warps": 9}]]}
    monkeypatch.setattr(shipped, "load", lambda: [near, head])
    for rows, expected in ((3000, 9), (5000, 9), (7000, 1), (9000, 1)):
        configs = shipped.configs(TUNABLES["softmax"], Facts((rows,), (4096,), torch.bfloat16), GPU)
        assert configs[0]["rows"] == expected


# -- the cost model ----------------------------------------------------------------------------------
FULL = Work(programs=8192, warps=4, elements=4096, itemsize=2, bytes_moved=8192 * 4096 * 4, flops=8192 * 4096 * 4)


def test_a_full_machine_is_held_to_its_bandwidth() -> None:
    floor = 1e3 * FULL.bytes_moved / figures(H200).bytes_per_s
    assert floor <= predict(FULL, H200) <= 1.25 * floor


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (replace(FULL, programs=1), replace(FULL, programs=8)),
        (replace(FULL, useful=0.5), FULL),
        (replace(FULL, elements=64_000), FULL),
        (replace(FULL, flops=FULL.flops * 1000), FULL),
        (replace(FULL, bytes_moved=2 * FULL.bytes_moved), FULL),
        (replace(FULL, programs=9, passes=2.0), replace(FULL, programs=9)),
        (replace(FULL, warps=32, elements=32_768), replace(FULL, warps=32, elements=32_768, ahead=4)),
    ],
)
def test_what_costs_time_is_predicted_to(worse: Work, better: Work) -> None:
    assert predict(worse, H200) > 1.01 * predict(better, H200)


def test_a_machine_that_is_not_known_is_judged_by_its_processors() -> None:
    small, large = Machine("cuda", 89, 24), Machine("cuda", 89, 128)
    assert predict(FULL, small) > 3 * predict(FULL, large)
    assert figures(MI300X).bytes_per_s > figures(A100).bytes_per_s


def test_the_default_stands_where_it_fills_the_machine_and_where_the_gain_is_small() -> None:
    slow = replace(FULL, useful=0.2)
    assert choice({"default": slow, "other": FULL}, H200) == "default"
    few = replace(FULL, programs=10)
    assert choice({"default": replace(few, programs=1), "other": few}, H200) == "other"
    near = replace(few, bytes_moved=round(few.bytes_moved / (0.97 * MARGIN)))
    assert choice({"default": few, "other": near}, H200) == "default"
