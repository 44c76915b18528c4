"""`burn-torch tune`: measures kernels on this machine's GPU and keeps the timings; hands over to burn_kernels."""

from __future__ import annotations

import argparse
from typing import Final

from burn_torch.cli import options
from burn_torch.core.errors import ConfigError, DeviceError

HELP: Final = "measure the kernels on this machine's GPU, and keep what is fastest"
DESCRIPTION: Final = """\
Measures the candidates of each fused kernel on a GPU, checks that they compute the right thing, and keeps the timings
where every later run finds them.  Training never waits for it: without timings a table that comes with the package, a
cost model or a default decides.  The same as `python -m burn_kernels tune`.
"""
EXAMPLES: Final = """\
examples:
  burn-torch tune
  burn-torch tune --only softmax --shapes 4096x5120,64x50257
  burn-torch tune --report        what is chosen where, and what was disqualified; needs no GPU
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("--only", metavar="OP", help="operations whose name begins so")
    parser.add_argument("--shapes", metavar="ROWSxCOLS,...", help="instead of each operation's own shapes")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), help="instead of each operation's own")
    parser.add_argument("--devices", metavar="cuda:N", default="cuda:0", help="the GPU to measure on (default: cuda:0)")
    parser.add_argument("--again", action="store_true", help="measure also what is known, and replace it")
    parser.add_argument("--budget-s", type=options.positive, metavar="S", help="seconds for all measurements (3600)")
    parser.add_argument("--report", action="store_true", help="measure nothing: show what is chosen where")
    parser.add_argument("--json", action="store_true", help="with --report: as JSON")


def run(args: argparse.Namespace) -> int:
    """Measures, or reports."""
    if args.json and not args.report:
        raise ConfigError(
            "--json is for --report", given="--json alone", expected="--report --json", mend="add --report"
        )
    _check_shapes(args.shapes)
    from burn_torch.backend.libtorch.kernel_library import kernel_command
    from burn_torch.cli import devices

    if args.report:
        return kernel_command(["report", *(["--json"] if args.json else [])])
    has_gpu = any(name.startswith("cuda:") for name in devices.places())  # without one --devices is not what to mend
    place = devices.device(args.devices).place if has_gpu else "none"
    if not place.startswith("cuda"):
        raise DeviceError(
            "kernels are measured on a GPU",
            given=f"--devices {args.devices}",
            expected="a GPU, such as cuda:0",
            mend="run it on a machine with one; `burn-torch info` says what is here",
        )
    words = ["tune", "--device", place]
    for name in ("only", "shapes", "dtype", "budget_s"):
        value = getattr(args, name)
        words += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    return kernel_command([*words, *(["--again"] if args.again else [])])


def _check_shapes(text: str | None) -> None:
    parts = [] if text is None else text.split(",")
    faulty = [part for part in parts if not all(size.isdecimal() and int(size) > 0 for size in part.split("x"))]
    faulty += [part for part in parts if part.count("x") != 1 and part not in faulty]
    if faulty:
        raise ConfigError(
            "these are not shapes",
            given=f"--shapes {text}",
            expected="ROWSxCOLS with commas between them, such as 8192x4096,64x50257",
            mend=f"mend {', '.join(faulty)}",
        )
