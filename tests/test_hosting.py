"""Files that the hosting service reads: the workflow, the forms, the hooks; and the page of where it was tried."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def matrix(name: str) -> list[str]:
    """The values of one axis of the workflow's matrix."""
    (values,) = re.findall(rf"^ +{name}: \[(.+)\]$", WORKFLOW.read_text(encoding="utf-8"), re.MULTILINE)
    return [value.strip(' "') for value in values.split(",")]


def read_yaml(path: Path) -> Any:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: make setup")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_matrix_begins_where_the_package_does() -> None:
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    assert f'python_requires=">={matrix("python")[0]}"' in setup
    assert f'"torch>={matrix("torch")[0]}"' in setup


def test_commands_of_the_workflow_are_there() -> None:
    commands = re.findall(r"- run: (.+)$", WORKFLOW.read_text(encoding="utf-8"), re.MULTILINE)
    assert {".ci/run check", ".ci/run test"} <= set(commands)
    for command in commands:
        words = command.split()
        assert words[0] in (".ci/run", "make")
        assert words[1] in TARGETS


def test_the_page_names_each_cell_as_tried_or_untried() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Where it was tried")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\S+) \| (\S+) \| (\S+) \| (.+) \|$", page, re.MULTILINE)
    cells = {(system, python, torch): what for python, torch, system, what in rows}
    systems = [os.partition("-")[0].replace("ubuntu", "Linux").replace("macos", "macOS") for os in matrix("os")]
    expected = set(itertools.product(systems, matrix("python"), matrix("torch")))
    assert {cell for cell in cells if cell[1][0].isdigit()} == expected
    assert all(what for what in cells.values())


def test_actionlint_finds_nothing() -> None:
    beside = Path(sys.executable).parent / "actionlint"
    program = str(beside) if beside.is_file() else shutil.which("actionlint")
    if program is None:
        pytest.skip("needs actionlint: make hooks")
    done = subprocess.run([program, str(WORKFLOW)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_workflow_may_read_and_nothing_more() -> None:
    workflow = read_yaml(WORKFLOW)
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []  # a text of strangers is no command
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda p: p.stem)
def test_a_form_has_what_the_service_asks_for(path: Path) -> None:
    form = read_yaml(path)
    assert {"name", "description", "body"} <= set(form)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"textarea", "input", "dropdown", "checkboxes"}
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_hooks_use_what_is_installed_and_fetch_nothing() -> None:
    settings = read_yaml(ROOT / ".pre-commit-config.yaml")
    (local,) = settings["repos"]
    assert local["repo"] == "local"
    assert {hook["language"] for hook in local["hooks"]} == {"system"}
    entries = " ".join(hook["entry"] for hook in local["hooks"])
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    checks = makefile.split("\ncheck: ")[1].split("\n\n")[0]
    for tool in ("ruff format --check", "ruff check", "docs/generate --check", "lint-imports", "actionlint"):
        assert tool in entries
        assert tool in checks
