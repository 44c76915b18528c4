"""Explanations as pages of HTML: one for a plan, and several in one for a stream, a function or a script."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from burn_torch.core.errors import ArtifactError
from burn_torch.core.files import write_atomic
from burn_torch.graph.drawing import draw
from burn_torch.graph.ir import Graph

__all__ = ["require_writable", "section", "write_page"]


def section(text: str, graph: Graph | None = None, sources: Mapping[str, str] | None = None, heading: str = "") -> str:
    """A part of a page: a heading, the picture of a graph, a text, and generated sources by the names of kernels."""
    parts = [f"<h2>{escape(heading)}</h2>"] if heading else []
    if graph is not None:
        parts.append(draw(graph))
    parts.append(f"<pre>{escape(text)}</pre>")
    parts += [f"<h3>{escape(name)}</h3><pre>{escape(source)}</pre>" for name, source in (sources or {}).items()]
    return "\n".join(parts)


def write_page(sections: Sequence[str], path: str | os.PathLike[str] | None) -> Path:
    """Writes sections as one page and returns its path; a new temporary file without one.  It opens nothing.

    Raises: ArtifactError where nothing can be written.
    """
    if path is None:
        handle, name = tempfile.mkstemp(prefix="burn_torch_fusion_", suffix=".html")
        os.close(handle)
        path = name
    body = "\n<hr>\n".join(sections)
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>burn_torch fusion</title></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )
    require_writable(path)
    try:
        write_atomic(Path(path), page.encode("utf-8", "replace"), durable=False)
    except OSError as err:
        raise _unwritable(path, err) from err
    return Path(path)


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raises: ArtifactError for a folder, or a file in a folder that is not there."""
    target = Path(path)
    missing = errno.EISDIR if target.is_dir() else errno.ENOENT if not target.absolute().parent.is_dir() else None
    if missing is not None:
        raise _unwritable(path, OSError(missing, os.strerror(missing)))


def _unwritable(path: str | os.PathLike[str], err: OSError) -> ArtifactError:
    return ArtifactError(
        "the page cannot be written",
        given=f"{os.fspath(path)}: {err.strerror or err}",
        expected="the path of a file in a folder that is there",
        mend='name another, such as "page.html"',
    )
