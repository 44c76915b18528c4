"""The origin of a node: the user's line, and the module that was running there."""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final, NamedTuple, final

from burn_torch.core.frames import PACKAGE_DIRECTORY, is_users, user_frame

__all__ = ["Origin", "Origins"]


class Origin(NamedTuple):
    """The user's line and the path of the module that made a node.  Nothing that is computed depends on it.

    `path` is the module path, "encoder.layers.0.linear", or "" outside of any module.  `backward` marks a node of
    the gradient; its line and path are those of the forward operation whose gradient it computes.  `text` is the
    source of the line where it is not to be read from `file`: another machine wrote the graph.
    """

    file: str
    line: int
    function: str
    path: str = ""
    backward: bool = False
    text: str | None = None

    @property
    def source(self) -> str:
        """The text of the line, read when it is asked for; "" where there is no such file or line."""
        return linecache.getline(self.file, self.line).strip() if self.text is None else self.text

    @property
    def where(self) -> str:
        """'model.py:12 in forward: <source>'; "" where no line of the user's was on the stack."""
        if not self.file:
            return ""
        text = f"{self.file}:{self.line} in {self.function}"
        return f"{text}: {self.source}" if self.source else text

    def __str__(self) -> str:
        """`where`, with the module path and the mark of a gradient before it."""
        text = " at ".join(part for part in (self.path, self.where) if part)
        return f"gradient of {text}" if self.backward else text


@final
class Origins:
    """Finds the origin of what is traced at the moment; one for each trace, which it must not outlive.

    paths   gives the path of a module, None for any other object
    frame   the frame that makes the trace: nothing above it is searched for modules

    `given` stands in for what the stack says: in a backward, the origin of the operation whose gradient is computed;
    while another graph runs over the trace, that of its node.  `last` is what was found last.
    """

    __slots__ = ("_above", "_end", "_kinds", "_paths", "given", "last")

    def __init__(self, paths: Callable[[object], str | None] | None, frame: FrameType) -> None:
        self._paths: Final = paths
        self._end: Final = (id(frame), frame.f_code)  # not the frame: it would keep all that its function knows
        above = user_frame(frame)[0]
        code = above.f_code
        self._above: Final = (code.co_filename, above.f_lineno, code.co_name) if is_users(code.co_filename) else None
        self._kinds: Final[dict[CodeType, tuple[bool, bool]]] = {}
        self.given: Origin | None = None
        self.last: Origin | None = None

    def find(self, frame: FrameType) -> Origin | None:
        """The origin of an operation that is traced in `frame`; None where there is neither a line nor a module."""
        self.last = self._search(frame) if self.given is None else self.given
        return self.last

    def walk(self, origin: Origin | None) -> None:
        """Says that gradients of what `origin` made are computed from now on."""
        self.given = None if origin is None else origin if origin.backward else origin._replace(backward=True)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Puts `given` back at the end."""
        before = self.given
        try:
            yield
        finally:
            self.given = before

    def _search(self, frame: FrameType) -> Origin | None:
        where: tuple[str, int, str] | None = None
        path: str | None = None
        at: FrameType | None = frame
        while at is not None:
            code = at.f_code
            kind = self._kinds.get(code)
            if kind is None:
                kind = self._kinds[code] = (is_users(code.co_filename), self._paths is not None and _is_method(code))
            if where is None and kind[0]:
                where = (code.co_filename, at.f_lineno, code.co_name)
            if path is None and kind[1] and self._paths is not None:
                path = self._paths(at.f_locals.get("self"))
            if (where is not None and path is not None) or (id(at), code) == self._end:
                break
            at = at.f_back
        where = where or self._above
        if where is None and path is None:
            return None
        return Origin(*(where or ("", 0, "")), path or "")


_BELOW_MODULES: Final = tuple(
    f"{PACKAGE_DIRECTORY}{os.sep}{layer}{os.sep}" for layer in ("core", "ops", "graph", "backend", "tensor")
)


def _is_method(code: CodeType) -> bool:
    """Tells if `self` may be a module there: f_locals, which makes a dict of all names, is read of no other frame."""
    return "self" in code.co_varnames[: code.co_argcount] and not code.co_filename.startswith(_BELOW_MODULES)
