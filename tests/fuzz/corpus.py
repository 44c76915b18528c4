"""Programs that failed once, small, as JSON files: the quick tests run them through every door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.program import Program

if TYPE_CHECKING:
    from tests.fuzz.case import Case

__all__ = ["CORPUS", "as_python", "kept", "load", "save"]

CORPUS: Final = Path(__file__).parent / "corpus"

_OTHER: Final = {
    "compile": "compile(f)(xs, ns)",
    "c": "compile(f, fuse=True)(xs, ns)",
    "interpreter": "compile(f, fuse=True)(xs, ns)  # under TRITON_INTERPRET=1",
    "ndarray": "f(arguments(Device.ndarray()), ns)",
    "lazy": "f(arguments(Device.cpu(fused=True)), ns)",
    "cuda": "f(arguments(Device.cuda(0)), ns)",
}
"""How a user says what a door does."""


def as_python(failure: Any) -> str:
    """A failure as a Python program in the public API."""
    program = Program.from_json(failure.program)
    wanted = program.wanted
    lines = [
        f'"""{failure.door}: {failure.words}"""',
        "import numpy as np",
        "from burn_torch import Device, DType, Tensor, compile, ops, vjp",
        "",
        program.source(),
        "",
        "xs = arguments(Device.cpu(fused=False))",
        "print([y.tolist() for y in f(xs, ns)])",
    ]
    other = _OTHER.get(failure.door.split()[0])
    if other is not None:
        lines.append(f"print([y.tolist() for y in {other}])")
    if wanted:
        lines += [
            f"wanted = {wanted}  # gradients of these, with random upstream gradients",
            "def of_wanted(*some):",
            "    return f([some[wanted.index(i)] if i in wanted else x for i, x in enumerate(xs)], ns)",
            "ys, pull = vjp(of_wanted, *[xs[i] for i in wanted])",
            "print([g.tolist() for g in pull([y.new_full(y.shape, 0.7) if y.dtype.is_float else None for y in ys])])",
        ]
    return "\n".join(lines)


def save(folder: Path, name: str, phase: str, failure: Any) -> Path:
    """Writes a shrunk failure as a file of the corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    saved = {"phase": phase, "door": failure.door, "words": failure.words, "second": True, "seed": failure.seed}
    path.write_text(json.dumps({**saved, "program": json.loads(failure.program)}) + "\n", encoding="utf-8")
    return path


def kept() -> list[Path]:
    """The files of the corpus."""
    return sorted(CORPUS.glob("*.json"))


def load(path: Path) -> tuple[str, Case]:
    """The phase that failed once, and the case."""
    from tests.fuzz.case import Case

    saved = json.loads(path.read_text(encoding="utf-8"))
    return saved["phase"], Case(Program.from_json(json.dumps(saved["program"])), saved["second"], saved["seed"])
