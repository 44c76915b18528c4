"""Runs the Python of README.md and of every page, so that the documentation cannot rot.

The blocks of a page run top to bottom in one module, in an empty directory.  A block is run if its fence says
```python; it is shown only if it says ```python no-run, or another language.
"""

from __future__ import annotations

import re
import sys
import textwrap
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import burn_torch

ROOT = Path(__file__).resolve().parents[2]
IN_THE_ROOT = [ROOT / name for name in ("README.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*IN_THE_ROOT, *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]

# Pages written ahead of the code: strict, so the line must go when the page runs.
AHEAD: dict[str, str] = {}

FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,}) *(?P<info>[^`\n]*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block: what its fence says, its text, and the line of the page on which the text begins."""

    info: str
    text: str
    line: int

    @property
    def runs(self) -> bool:
        return self.info.split() == ["python"]


def blocks(page: str) -> list[Block]:
    """Returns the fenced blocks of a page; a block that is never closed, or says what nobody knows, is an error."""
    pieces = []
    lines = iter(enumerate(page.splitlines(), 1))
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is None:
            continue
        info = opening["info"].strip()
        if info.startswith("python") and info not in ("python", "python no-run"):
            raise ValueError(f"line {number}: the fence says {info!r}, expected 'python' or 'python no-run'")
        text = []
        for _, inner in lines:
            if inner.strip() == opening["mark"]:
                break
            text.append(inner)
        else:
            raise ValueError(f"line {number}: the block is never closed")
        pieces.append(Block(info, textwrap.dedent("\n".join(text) + "\n"), number + 1))
    return pieces


def script(page: str) -> str:
    """Returns the blocks that run, each on the lines that it has in the page, all else blank."""
    lines = [""] * (page.count("\n") + 1)
    for block in blocks(page):
        if block.runs:
            text = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(text)] = text
    return "\n".join(lines)


def run(page: Path, module: ModuleType) -> None:
    """Runs the page as the module; it becomes a file, since `inspect`, and Triton with it, want to read the source."""
    file = Path.cwd() / f"{page.stem}.page.py"
    file.write_text(script(page.read_text(encoding="utf-8")), encoding="utf-8")
    module.__file__ = str(file)
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), module.__dict__)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An empty module that classes can name as their home, an empty directory to run in, a fresh process's seed."""
    page_module = ModuleType("a_page_of_the_documentation")
    monkeypatch.setitem(sys.modules, page_module.__name__, page_module)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    burn_torch.seed(0)
    return page_module


def parameter(page: Path) -> object:
    name = page.relative_to(ROOT).as_posix()
    marks = []
    if name in AHEAD:
        marks = [pytest.mark.xfail(strict=True, raises=(ImportError, AttributeError), reason=AHEAD[name])]
    return pytest.param(page, id=name, marks=marks)


@pytest.mark.parametrize("page", [parameter(page) for page in PAGES])
def test_page_runs(page: Path, module: ModuleType) -> None:
    run(page, module)


def test_the_readme_has_code_that_runs() -> None:
    assert [block for block in blocks(PAGES[0].read_text(encoding="utf-8")) if block.runs] != []


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        prose = re.sub(r"^( *)(```+).*?^\1\2$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose)
        broken += [f"{page.relative_to(ROOT)}: {target}" for target in targets if not (page.parent / target).exists()]
    assert broken == []


@pytest.fixture
def page(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A page with the text that the test asks for."""
    path = tmp_path / "page.md"
    path.write_text(textwrap.dedent(request.param), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "page",
    [
        """\
        # P
        ```python
        a = 1
        ```
        ```python no-run
        a = 5
        ```
        ```text
        a = 6
        ```
        * item
          ~~~python
          b = a + 1
          ~~~
        """
    ],
    indirect=True,
)
def test_blocks_share_one_namespace_and_shown_ones_do_not_run(page: Path, module: ModuleType) -> None:
    run(page, module)
    assert (module.__dict__["a"], module.__dict__["b"]) == (1, 2)


@pytest.mark.parametrize("page", ["# P\n\n```python\na = 1\n\na / 0\n```\n"], indirect=True)
def test_a_fault_names_the_line_of_the_page(page: Path, module: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        run(page, module)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (Path(last.filename).name, last.lineno, last.line) == ("page.page.py", 6, "a / 0")


@pytest.mark.parametrize(
    "page",
    [
        """\
        # P
        ```python
        from __future__ import annotations
        import inspect, typing

        class A:
            x: Alias
        ```
        Text.
        ```python
        Alias = int
        hints = typing.get_type_hints(A)
        source = inspect.getsource(A)
        ```
        """
    ],
    indirect=True,
)
def test_a_class_of_a_page_finds_its_annotations_and_its_source(page: Path, module: ModuleType) -> None:
    run(page, module)
    assert module.__dict__["hints"] == {"x": int}
    assert module.__dict__["source"] == "class A:\n    x: Alias\n"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a\n```python\nx = 1\n", "line 2: the block is never closed"),
        (
            "```python norun\nx = 1\n```\n",
            "line 1: the fence says 'python norun', expected 'python' or 'python no-run'",
        ),
    ],
)
def test_a_malformed_page_is_an_error(text: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        blocks(text)
