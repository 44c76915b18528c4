"""Defines what every generator needs: write a file if its text has changed, or only tell that it would."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ROOT", "refresh"]

ROOT = Path(__file__).resolve().parents[2]


def refresh(texts: dict[str, str], check: bool, root: Path = ROOT) -> list[str]:
    """Brings files up to date; returns the paths whose text was another one.

    `texts` maps a path below `root` to the whole text of the file.  With `check` nothing is written.
    """
    stale = []
    for name, text in texts.items():
        path = root / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return stale
