"""The look-up of Burn's names sees what is missing, and what differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="module")
def parity(generator: Callable[[str], Any]) -> Any:
    return generator("parity")


def verdicts(parity: Any, *lines: str) -> list[str]:
    names = [name for line in lines for name in parity._read("0 planted", line, set())]
    words = []
    for name in names:
        verdict = parity.judge(name, {"Parameter": "module.Param"})
        words.append(parity.differences(name, {}) or verdict.word if verdict.word == "here" else verdict.word)
    return words


def test_every_line_is_read(parity: Any) -> None:
    sections = parity.sections()
    assert sum(map(len, sections.values())) > 2_900
    paths = [
        path for names in sections.values() for name in names if name.mark != "!" for path in name.target.split(" + ")
    ]
    assert not [path for path in paths if " " in path]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nn.Linear: forward", ["here"]),
        ("Linear: forward planted", ["here", "here", "missing"]),
        ("Planted: new", ["missing", "missing"]),
        ("LinearConfig: d_input:required bias:True planted:3", ["here", "here", "here", "missing"]),
        ("LinearConfig: bias:False", ["here", "Burn: False; here: True"]),
        ("Tensor: exp() clamp(min,max) exp(other)", ["here", "here", "here", "Burn: other; here: "]),
        ("Tensor: unfold_planted is_distributed", ["here", "missing", "missing"]),
        ("Parameter.shape = module.Param.shape", ["here"]),
        ("Parameter.planted = module.Param.planted", ["missing"]),
        ("Device.capture ~ graph.Trace; no device of its own", ["in part"]),
        ("two words ? tests/docs/test_parity.py::test_every_line_is_read", ["here"]),
        ("two words ? tests/docs/test_parity.py::test_planted", ["missing"]),
        ("two words ? docs/planted.md", ["missing"]),
        ("two words ~? README.md; in short", ["in part"]),
        ("a page ! none", ["missing"]),
        ("- immutable: PathFilter.clear Tensor.inplace", ["left out", "left out"]),
        ("onnx: Abs Planted", ["here", "missing"]),
    ],
)
def test_what_is_planted_is_found(parity: Any, line: str, expected: list[str]) -> None:
    assert verdicts(parity, line) == expected


def test_a_closed_section_may_lack_nothing(parity: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"1.1 a section": [(parity.Name("1.1 a section", "Planted"), parity.Verdict("missing"))]}
    monkeypatch.setattr(parity, "judged", lambda: rows)
    monkeypatch.setattr(parity, "CLOSED", ("1.",))
    with pytest.raises(SystemExit, match=r"Burn has Planted \(1.1 a section\); mend: write it"):
        parity.main(check=True)
