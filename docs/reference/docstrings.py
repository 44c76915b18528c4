"""Docstrings of this project as reStructuredText.

They are written to be read in the source: `names` in single backticks, formulas indented by four columns, names and
meanings in two columns, sections such as `Shapes:` on lines of their own.  Each becomes the markup that shows it so; no
other character means anything.
"""

from __future__ import annotations

import re
import textwrap

__all__ = ["as_text", "first_sentence", "inline", "literal"]

SECTION = re.compile(
    r"(Shapes|Dtypes|Units|Limits?|Raises|Returns|Source|PyTorch|Layout|Deterministic|Example):(?: |$)"
)
"""Holds what begins a paragraph of its own."""
COLUMNS = re.compile(r"(?P<name>[`\w.*,/=<>\[\]() |+-]{0,40}[`\w*)\]>]) {2,}(?P<meaning>\S.*)")
"""A name, and its meaning in a second column."""
ITEM = re.compile(r"(?:[*-]|\d+\.) ")
INDENT = "    "


def as_text(docstring: str) -> list[str]:
    """Returns the lines of a docstring, which `inspect.cleandoc` has cleaned, as reStructuredText."""
    lines: list[str] = []
    for block in re.split(r"\n[ \t]*\n", docstring.strip("\n")):
        lines += [*_block(block.splitlines()), ""]
    return lines


def first_sentence(docstring: str) -> str:
    """Returns the first sentence of a docstring as one line."""
    words = " ".join(docstring.strip().partition("\n\n")[0].split())
    return inline(re.split(r"(?<=[.?!])\s", words)[0])


def literal(text: str) -> str:
    """Returns a text that is shown as code."""
    return f"``{text}``"


def inline(text: str) -> str:
    """Returns a text in which backticks mark code, and nothing else marks anything."""
    parts = re.split(r"(``?[^`]+``?)", text)
    for at, part in enumerate(parts):
        if not at % 2:
            parts[at] = re.sub(r"[*`|\\]|_(?!\w)", lambda special: f"\\{special[0]}", part)
            continue
        code = part.strip("`").strip()
        before, after = parts[at - 1][-1:], parts[at + 1][:1]
        opens = "" if not before or before in " \n'\"([{<-/:" else "\\ "
        closes = "" if not after or after in " \n'\")]}>-/\\:.,;!?" else "\\ "
        parts[at] = f"{opens}{literal(code)}{closes}"
    return "".join(parts)


def _block(lines: list[str]) -> list[str]:
    """Returns a block between empty lines."""
    if not lines:
        return []
    if lines[0].startswith(">>>"):
        return lines
    if all(line.startswith(INDENT) for line in lines):
        return _code(lines)
    pieces: list[list[str]] = []  # each begins with a line that is not indented
    for line in lines:
        begins = not pieces or SECTION.match(line) or ITEM.match(line) or COLUMNS.fullmatch(line)
        continues = pieces and COLUMNS.fullmatch(pieces[-1][0]) and not line.startswith(" ")
        if begins or continues:
            pieces.append([line])
        else:
            pieces[-1].append(line)
    text: list[str] = []
    for piece in pieces:
        text += [*_piece(piece), ""]
    return text[:-1]


def _piece(lines: list[str]) -> list[str]:
    """Returns a paragraph, an item of a list or a name with its meaning, and the formula indented below it."""
    first = lines[0]
    columns, item, section = COLUMNS.fullmatch(first), ITEM.match(first), SECTION.match(first)
    if not (columns or item or section):
        count = next((at for at, line in enumerate(lines) if line.startswith(INDENT)), len(lines))
        code = _code(lines[count:])
        return [*(inline(line.strip()) for line in lines[:count]), *([""] if code else []), *code]
    rest = " ".join(line.strip() for line in lines[1:])
    if columns:
        meaning = f"{columns['meaning']} {rest}".strip()
        return [literal(columns["name"].replace("`", "")), f"{INDENT}{inline(meaning)}"]
    words = inline(f"{first[(item or section).end() :]} {rest}".strip())
    return [f"* {words}"] if item else [f"**{section[1]}:** {words}"]


def _code(lines: list[str]) -> list[str]:
    if not lines:
        return []
    return ["::", "", *textwrap.indent(textwrap.dedent("\n".join(lines)), "   ").splitlines()]
