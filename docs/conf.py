"""Sphinx's settings.  `make docs` builds; nothing here reads the network, so it works offline once installed."""

import inspect
import re
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE / "reference"), str(_HERE.parent), str(_HERE.parent / "kernels")]

import docstrings  # noqa: E402  # beside the pages that it helps to write
import pages  # noqa: E402

_VERSION = Path(__file__).parents[1] / "burn_torch" / "version.py"

project = "burn_torch"
author = "The burn_torch authors"
project_copyright = "2026, The burn_torch authors"
release = re.findall(r'^__version__ = "(.+)"$', _VERSION.read_text(encoding="utf-8"), re.MULTILINE)[0]
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3  # so that pages can link to each other's headings
myst_enable_extensions = ["colon_fence", "deflist"]

html_theme = "furo"
html_title = f"burn_torch {release}"
html_show_sphinx = False
pygments_style = "friendly"


# -- the reference of the API, see reference/pages.py ----------------------------------------------------
toc_object_entries = False  # the sidebar lists pages and headings, not a thousand names
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100


def _as_text(app: Any, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = docstrings.as_text(inspect.cleandoc("\n".join(lines)))


def setup(app: Any) -> None:
    """Writes the pages of the reference, and has autodoc read docstrings as they are written here."""
    pages.write(_HERE / "reference")
    app.connect("autodoc-process-docstring", _as_text)
