"""python -m burn_kernels: measure kernels on this machine's GPU, show what is chosen, carry timings elsewhere.

    python -m burn_kernels tune                              every op at its usual shapes
    python -m burn_kernels tune --only softmax --shapes 4096x5120,64x50257
    python -m burn_kernels report                            what is chosen where; what was disqualified and why
    python -m burn_kernels export timings.json               and, on another machine of the same kind:
    python -m burn_kernels import timings.json

Where timings are kept: $BURN_KERNELS_CACHE, or the platform's folder for caches.
Exit status: 0 done; 1 an error that the last lines explain; 2 wrong usage; 3 no GPU to measure on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from burn_kernels.autotune import shipped
from burn_kernels.autotune.bundle import export_bundle, import_bundle
from burn_kernels.autotune.compiling import Tally
from burn_kernels.autotune.report import lines, report_of
from burn_kernels.autotune.sampling import Sampled
from burn_kernels.autotune.selection import current
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.autotune.warmup import Measured, tune
from burn_kernels.errors import KernelDeviceError, KernelError

__all__ = ["main"]

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    asked = _parser().parse_args(arguments)
    try:
        status: int = asked.run(asked)
    except KernelDeviceError as error:
        _say(str(error), sys.stderr)
        return 3
    except KernelError as error:
        _say(str(error), sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m burn_kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    part = commands.add_parser("tune", help="measure candidates on a GPU and keep the timings")
    part.add_argument("--only", default="", metavar="OP,...", help="ops whose name begins so, in this order")
    part.add_argument("--part", type=_part, default=(0, 1), metavar="I/N", help="every N-th key, from the I-th")
    part.add_argument("--shapes", type=_shapes, metavar="ROWSxCOLS,...", help="instead of each op's own shapes")
    part.add_argument("--dtype", choices=sorted(DTYPES), help="instead of each op's own type (mostly bfloat16)")
    part.add_argument("--device", type=_device, default=0, metavar="N", help="the GPU's number, or cuda:N")
    part.add_argument("--again", action="store_true", help="measure also what is in the store, and replace it")
    part.add_argument("--budget-s", type=float, metavar="S", help="seconds for all measurements (default 3600)")
    part.add_argument("--most", type=_count, metavar="K", help="of each key the default and the K - 1 best predicted")
    part.add_argument("--workers", type=int, metavar="N", help="processes that compile ahead (default: cores less 1)")
    part.add_argument("--profile", type=Path, metavar="FILE", help="where the time goes, function by function")
    part.set_defaults(run=_tune)
    part = commands.add_parser("report", help="show what is chosen where, timings, disqualified candidates")
    part.add_argument("--json", action="store_true", help="as JSON")
    part.set_defaults(run=_report)
    part = commands.add_parser("export", help="write all timings to a file")
    part.add_argument("file", type=Path)
    part.set_defaults(run=_export)
    part = commands.add_parser("ship", help="for developers: write the table of timings that comes with the package")
    part.add_argument("files", type=Path, nargs="+", help="what export wrote, the latest last")
    part.set_defaults(run=_ship)
    part = commands.add_parser("import", help="add timings from a file that another machine exported")
    part.add_argument("file", type=Path)
    part.set_defaults(run=_import)
    return parser


def _shapes(text: str) -> list[tuple[int, int]]:
    lines = []
    for part in text.split(","):
        sizes = part.split("x")
        if len(sizes) != 2 or not all(size.isdigit() and int(size) > 0 for size in sizes):
            raise argparse.ArgumentTypeError(f"{part!r} is not ROWSxCOLS, 8192x4096 for example")
        lines.append((int(sizes[0]), int(sizes[1])))
    return lines


def _part(text: str) -> tuple[int, int]:
    first, _, step = text.partition("/")
    if not (first.isdigit() and step.isdigit() and int(first) < int(step)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I below N, 0/4 for example")
    return int(first), int(step)


def _count(text: str) -> int:
    if not (text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of candidates")
    return int(text)


def _device(text: str) -> int:
    number = text.removeprefix("cuda:")
    if not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a GPU: 0, or cuda:0")
    return int(number)


def _tune(asked: argparse.Namespace) -> int:
    budget = current().budget
    budget.process_s = 3600.0 if asked.budget_s is None else asked.budget_s
    dtype, begun = DTYPES.get(asked.dtype), time.monotonic()
    current().most = asked.most
    if asked.profile is None:
        faults = _tuned(asked, dtype)
    else:
        with Sampled() as sampled:
            faults = _tuned(asked, dtype)
        asked.profile.write_text("\n".join(sampled.lines()) + "\n", encoding="utf-8")
    kept, took_s = sum(not measured.why_not for measured in faults), time.monotonic() - begun
    _say(f"{kept} of {len(faults)} keys measured in {took_s:.0f} s; python -m burn_kernels report shows them")
    return 0 if kept == len(faults) else 1


def _tuned(asked: argparse.Namespace, dtype: torch.dtype | None) -> list[Measured]:
    return tune(
        asked.only,
        asked.shapes,
        dtype=dtype,
        device=asked.device,
        again=asked.again,
        part=asked.part,
        workers=asked.workers,
        progress=lambda m: _say(told(m)),
        compiled=lambda tally: _say(ahead(tally)),
    )


def told(measured: Measured) -> str:
    """One line of progress, and one for each candidate that was disqualified."""
    head = f"[{measured.number}/{measured.count}] {measured.key}: "
    if measured.why_not:
        text = f"not kept: {measured.why_not}"
    elif measured.median_ms is None:
        text = measured.chosen
    else:
        gain = f", default {measured.default_ms:.4f} ms" if measured.default_ms is not None else ""
        text = f"{measured.chosen}, {measured.median_ms:.4f} ms{gain}"
    if measured.took_s >= 1.0:  # most take a tenth of a second
        text += f" (took {measured.took_s:.0f} s)"
    return "\n".join([head + text, *(f"    disqualified {line}" for line in measured.disqualified)])


def ahead(tally: Tally) -> str:
    """The work of the processes that compile, with each kernel that failed and why."""
    each = tally.spent_s / max(1, tally.compiled)
    head = f"{tally.compiled} kernels compiled ahead, {each:.1f} s each; {tally.waited_s:.0f} s waited for them"
    return "\n".join([head, *(f"    not compiled ahead: {line}" for line in tally.failed)])


def _report(asked: argparse.Namespace) -> int:
    report = report_of(current())
    if asked.json:
        _say(json.dumps(report.as_data(), indent=1))
        return 0
    gpus = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    _say(f"devices: {', '.join(gpus) or 'no GPU; CPU tensors use the references, which have no configs'}")
    _say("\n".join(lines(report)))
    return 0


def _export(asked: argparse.Namespace) -> int:
    _say(f"{export_bundle(current().store, asked.file)} rows written to {asked.file}")
    return 0


def _import(asked: argparse.Namespace) -> int:
    _say(f"{import_bundle(current().store, asked.file)} new rows from {asked.file}")
    return 0


def _ship(asked: argparse.Namespace) -> int:
    import burn_kernels  # every family, so that every tunable is registered

    sources = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in asked.files}
    text = shipped.written(sources, TUNABLES)
    shipped.FILE.write_text(text, encoding="utf-8")
    rows, known = json.loads(text)["problems"], len(burn_kernels.REGISTRY)
    ops = sorted({row["op"] for row in rows})
    _say(f"{len(rows)} problems of {', '.join(ops)} written to {shipped.FILE.name}; {known} operations are registered")
    kernels = {tunable.kernel for tunable in TUNABLES.values()}
    old = {row["key"] for source in sources.values() for row in source["timings"] if row["kernel"] not in kernels}
    old -= {row["key"] for source in sources.values() for row in source["timings"] if row["kernel"] in kernels}
    if old:
        _say(f"left out, since their kernels have changed: {len(old)} keys, {', '.join(sorted(old))}")
    return 0


def _say(text: str, stream: object = None) -> None:
    out = sys.stdout if stream is None else sys.stderr
    out.write(text + "\n")
    out.flush()
