"""The recorder of plans: the same twice, and a plan that changes is told."""

from __future__ import annotations

from typing import Any

import pytest

from burn_torch.graph.ir import Graph
from tests.fusion import replay


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("plans")
    entries = replay.record(directory, quick=True)
    assert list(replay.recorded(directory)) == list(entries.values())
    return entries


def replanned(entry: dict[str, Any]) -> dict[str, Any]:
    graphs = [Graph.from_json(text) for text in entry["graphs"]]
    return replay.plan_case(entry["door"], graphs, entry["options"])


def test_a_record_has_every_door_and_sources_of_both_languages(recorded: dict[str, dict[str, Any]]) -> None:
    assert {entry["door"] for entry in recorded.values()} == {"passes", *replay.DOORS}
    sources = [name for entry in recorded.values() for name in entry["plan"]["sources"]]
    assert any("Triton" in name for name in sources)
    assert any("in C" in name for name in sources)
    refused = [name for name, entry in recorded.items() if entry["door"] != "passes" and not entry["plan"]["kernels"]]
    assert not refused, "a door of the library is not called as it is written"


def test_planning_again_gives_the_same_text_and_sources(recorded: dict[str, dict[str, Any]]) -> None:
    assert replay.compare(recorded.values(), replanned) == []


def test_another_plan_is_reported_with_its_bytes_and_its_peak(
    recorded: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = recorded["program gelu | outside"]
    whole = replay.fusion.plan_of
    monkeypatch.setattr(replay.fusion, "plan_of", lambda graph, *choices, strict=False: whole(graph, strict=not strict))
    (difference,) = replay.compare([entry], replanned)
    assert difference.startswith("program gelu | outside: kernels 1 -> 1, bytes 480 -> 480, peak 480 -> 480")
