"""Where a node comes from: the user's line, and the module that was running there."""

from __future__ import annotations

import linecache
from typing import NamedTuple

__all__ = ["Origin"]


class Origin(NamedTuple):
    """The user's line and the path of the module that made a node.  Nothing that is computed depends on it.

    `path` is the module path, "encoder.layers.0.linear", or "" outside of any module.  `backward` marks a node of
    the gradient; its line and path are those of the forward operation whose gradient it computes.
    """

    file: str
    line: int
    function: str
    path: str = ""
    backward: bool = False

    @property
    def source(self) -> str:
        """The text of the line, read when it is asked for; "" where there is no such file or line."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        """'model.py:12 in forward: <source>', with the module path and the mark of a gradient before it."""
        where = f"{self.file}:{self.line} in {self.function}"
        text = f"{where}: {self.source}" if self.source else where
        if self.path:
            text = f"{self.path} at {text}"
        return f"gradient of {text}" if self.backward else text
