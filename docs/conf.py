"""Sphinx's settings.  `make docs` builds; nothing here reads the network, so it works offline once installed."""

import re
from pathlib import Path

_VERSION = Path(__file__).parents[1] / "burn_torch" / "version.py"

project = "burn_torch"
author = "The burn_torch authors"
project_copyright = "2026, The burn_torch authors"
release = re.findall(r'^__version__ = "(.+)"$', _VERSION.read_text(encoding="utf-8"), re.MULTILINE)[0]
version = release

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3  # so that pages can link to each other's headings
myst_enable_extensions = ["colon_fence", "deflist"]

html_theme = "furo"
html_title = f"burn_torch {release}"
html_show_sphinx = False
pygments_style = "friendly"
