"""`burn-torch explain SCRIPT.py`: any script is run, and all that it computed is explained."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, final

from burn_torch.backend import LibTorch
from burn_torch.backend.lazy import watched_streams
from burn_torch.backend.lazy.default import VARIABLE
from burn_torch.backend.lazy.explanation import StreamExplanation, explain_stream
from burn_torch.core.errors import ConfigError
from burn_torch.core.reading import MAX_LINE, read_bounded
from burn_torch.core.wording import counted
from burn_torch.fusion import FusionExplanation, plan_of
from burn_torch.fusion import explain as explain_plan
from burn_torch.fusion.telling.page import section, write_page
from burn_torch.transform import Explanation
from burn_torch.transform.watching import watched_programs

__all__ = ["ScriptExplanation", "defines_recipe", "explain_script"]


@final
@dataclass(frozen=True)
class ScriptExplanation:
    """Holds what a script computed.

    streams    of fused devices, one for each thread and place that computed anything
    functions  what it compiled, in order
    unfused    for each of these, its kernels if it were fused; None where it is
    fault      what ended the script before its end; what it had computed until then is explained
    """

    script: str
    streams: tuple[StreamExplanation, ...]
    functions: tuple[Explanation, ...]
    unfused: tuple[FusionExplanation | None, ...]
    fault: BaseException | None = None

    @property
    def title(self) -> str:
        """Returns what there is, and how the script ended."""
        kind = type(self.fault).__name__
        words = f"{kind}: {self.fault}".splitlines()[0] if str(self.fault) else kind
        end = "" if self.fault is None else f"; ended by {words}"
        streams, functions = counted(len(self.streams), "stream"), counted(len(self.functions), "compiled program")
        return f"{self.script}: {streams}, {functions}{end}"

    def to_json(self) -> str:
        """All of it but the graphs, as JSON text."""
        functions = [
            fused.to_dict() | {"if_fused": None if unfused is None else unfused.to_dict()}
            for fused, unfused in zip(self.functions, self.unfused, strict=True)
        ]
        data = {
            "script": self.script,
            "streams": [stream.to_dict() for stream in self.streams],
            "functions": functions,
            "fault": None if self.fault is None else f"{type(self.fault).__name__}: {self.fault}",
        }
        return json.dumps(data, indent=1)

    def show(self, path: str | os.PathLike[str]) -> Path:
        """Writes a page of HTML with pictures, texts and sources.  Raises: ArtifactError where it cannot be written."""
        sections = [section(self.title)]
        for stream in self.streams:
            sections += stream.sections()
        for fused, unfused in zip(self.functions, self.unfused, strict=True):
            sections += fused.sections() + ([] if unfused is None else [unfused.section(_IF_FUSED)])
        return write_page(sections, path)

    def __str__(self) -> str:
        lines = [self.title, *map(str, self.streams)]
        for fused, unfused in zip(self.functions, self.unfused, strict=True):
            lines.append(str(fused))
            if unfused is not None:
                lines += [f"  {_IF_FUSED}", *(f"    {line}" for line in str(unfused).splitlines())]
        return "\n".join(lines)


_IF_FUSED = "not fused; with fuse=True it would be"


def defines_recipe(path: Path) -> bool:
    """Returns whether a file of Python has a RECIPE for `burn-torch train`; without one it is a script.  Runs
    nothing.
    """
    try:
        tree = ast.parse(read_bounded(path, MAX_LINE))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested beyond all reason
        return False
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return "RECIPE" in names


def explain_script(path: Path, arguments: Sequence[str]) -> ScriptExplanation:
    """Runs a file as `python FILE ARGUMENTS` does, on devices that are fused unless it says otherwise, and explains.

    BURN_TORCH_FUSION decides which devices are fused, "all" where it is not set.  Values that are recorded at the end
    and still held are computed.  An error of the script is kept with what was computed before.
    Raises: ConfigError where the file cannot be read, or computes nothing with burn_torch.
    """
    try:
        source = path.read_bytes()
    except OSError as err:
        raise ConfigError(
            "this script cannot be read",
            given=f"{path}: {err.strerror or err}",
            expected="a file of Python",
            mend="check the path",
        ) from err
    with _fused_everywhere(), watched_streams() as streams, watched_programs() as compiled:
        fault = _run(path, source, arguments)
        explained = tuple(explain_stream(stream) for stream in streams if stream.history or stream.pending)
        functions = tuple(compiled())
    if not explained and not functions and fault is None:
        raise ConfigError(
            "there is nothing to explain: this script computed nothing that burn_torch fuses or compiles",
            given=f"{path}, which ran to its end",
            expected="operations on a device that is fused, which is the default here, or a compiled function",
            mend="call what it defines; a device of Device.cpu(fused=False), and numpy's, is not fused",
        )
    choices = LibTorch().capabilities.choices
    unfused = tuple(
        None if each.fusion is not None else explain_plan(plan_of(each.graph, choices), choices) for each in functions
    )
    return ScriptExplanation(str(path), explained, functions, unfused, fault)


@contextlib.contextmanager
def _fused_everywhere() -> Any:
    before = os.environ.get(VARIABLE)
    os.environ.setdefault(VARIABLE, "all")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)


def _run(path: Path, source: bytes, arguments: Sequence[str]) -> BaseException | None:
    """Runs the script as the main module; what ended it, if not its end."""
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(path), __builtins__=__builtins__)
    before = sys.modules["__main__"], sys.argv, sys.path.copy()
    sys.modules["__main__"], sys.argv = module, [str(path), *arguments]
    sys.path[:] = [str(path.absolute().parent), *(entry for entry in sys.path if entry)]
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
        _flush()
    except SystemExit as end:
        _flush()
        return None if end.code in (None, 0) else end
    except KeyboardInterrupt:
        raise
    except BaseException as fault:
        return fault
    finally:
        sys.modules["__main__"], sys.argv, sys.path[:] = before
    return None


def _flush() -> None:
    """Computes what this thread has recorded and somebody holds."""
    from burn_torch.backend.lazy.decorator import streams_of_this_thread

    for stream in streams_of_this_thread():
        stream.flush()
