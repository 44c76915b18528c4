"""Times products with quantised weights on one GPU, beside torch's own kernels, the product in bf16 and a copy.

    python benchmarks/quantized.py                   the chosen configs; rows to benchmarks/data, or $OUT
    python benchmarks/quantized.py --sweep           every config of a wide list first, and the fastest of them
    python benchmarks/quantized.py --sweep --warm I/N    compiles every N-th config, from the I-th, and times nothing

How: as `benchmarks/kernels.py`: calls captured in CUDA graphs, in turns, the L2 cache overwritten before each, median
of the rounds.  `copy` moves as many bytes, read and written together, as codes and scales have; `share` is its time
over ours.  `error` is the relative root mean square against float64.
Cases: int8 with a scale a column, as torch._weight_int8pack_mm, and int4 with one for 128 rows of a column, as
torch._weight_int4pack_mm; x, scales and results in bf16.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))  # works with nothing installed
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import triton

from benchmarks._kernels.timing import Call, Replay, Timer, captured
from burn_kernels import quantized_linear
from burn_kernels.launch import ceil_div, machine_at
from burn_kernels.quantized_linear import Config

DEVICE = "cuda"


@dataclass(frozen=True)
class Case:
    """A product of `rows` with a weight (d_in, d_out) in codes; `group` rows of a column share a scale, 0 all."""

    rows: int
    d_in: int
    d_out: int
    bits: int
    group: int

    def __str__(self) -> str:
        scales = f"groups of {self.group}" if self.group else "a column"
        return f"{self.rows} x {self.d_in} x {self.d_out} int{self.bits}, {scales}"


CASES = [
    Case(rows, 4096, d_out, bits, group)
    for rows in (1, 16, 256)
    for d_out in (4096, 14336)
    for bits, group in ((8, 0), (4, 128))
]


class Inputs:
    """Tensors of a case; the weight in the layouts of all rivals."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        low, high = -(1 << (case.bits - 1)), 1 << (case.bits - 1)
        self.case = case
        self.x = torch.randn(case.rows, case.d_in, device=DEVICE, dtype=torch.bfloat16)
        whole = torch.randint(low, high, (case.d_in, case.d_out), device=DEVICE, dtype=torch.int8)
        groups = case.d_in // case.group if case.group else 1
        self.scale = (torch.rand(groups, case.d_out, device=DEVICE) / 100 + 1e-3).bfloat16()
        self.codes = whole
        if case.bits == 4:
            self.codes = (whole[:, 0::2] & 15) | (whole[:, 1::2] << 4)
        self.weight = (whole.float() * self.scale.float().repeat_interleave(case.d_in // groups, 0)).bfloat16()
        self.whole = whole
        self.bytes = sum(t.numel() * t.element_size() for t in (self.codes, self.scale))

    def ours(self, config: Config | None) -> Call:
        options = {"bits": self.case.bits, "size": self.case.d_out, "block": (self.case.group, 1)}
        return lambda: quantized_linear.forward(self.x, self.codes, self.scale, None, **options, config=config)  # type: ignore[arg-type]  # options of three types

    def exact(self) -> torch.Tensor:
        groups = self.scale.shape[0]
        wide = self.whole.double() * self.scale.double().repeat_interleave(self.case.d_in // groups, 0)
        return self.x.double() @ wide

    def rivals(self) -> Iterator[tuple[str, Call]]:
        """torch's products: in bf16 in both layouts of the weight, and with codes."""
        turned = self.weight.T.contiguous()
        yield "bf16", lambda: self.x @ self.weight
        yield "bf16 turned", lambda: torch.nn.functional.linear(self.x, turned)
        half = self.bytes // 4
        source, target = (torch.randn(half, device=DEVICE).bfloat16() for _ in range(2))
        yield "copy", lambda: target.copy_(source)
        yield "negation", lambda: torch.neg(source, out=target)
        if self.case.bits == 8:
            codes, scale = self.whole.T.contiguous(), self.scale.reshape(-1)
            yield "torch", lambda: torch._weight_int8pack_mm(self.x, codes, scale)
        else:
            unsigned = (self.whole.T + 8).to(torch.uint8)
            packed = torch._convert_weight_to_int4pack((unsigned[:, 0::2] << 4 | unsigned[:, 1::2]).contiguous(), 8)
            pairs = torch.stack([self.scale, torch.zeros_like(self.scale)], -1).contiguous()
            yield "torch", lambda: torch._weight_int4pack_mm(self.x, packed, self.case.group, pairs)


def wide_list(case: Case) -> list[Config]:
    """Configs worth a try, beyond those that a tuner has."""
    machine = machine_at(0)
    line = 64 * 8 // case.bits
    if case.rows <= 64:
        tiles = [
            (16, k, n * line, 2 * n * warps, stages)
            for k in (64, 128)
            for n in (1, 2, 4)
            for warps in (1, 2)
            for stages in (2, 3, 4)
            if k * n * 64 * stages < 150_000
        ]
    else:
        tiles = [
            (m, k, n, warps, stages)
            for m in (128, 256)
            for k in (64, 128)
            for n in (64, 128)
            for warps in (4, 8)
            for stages in (2, 3, 4)
            if m * n // warps <= 4096 and stages * (m * k * 2 + k * n * case.bits // 8) + k * n * 2 < 225_000
        ]
    configs = list(quantized_linear.candidates(case.rows, case.d_in, case.d_out, case.bits, 2, machine))
    most = (8 if case.rows <= 64 else 3) * machine.processors
    for m, k, n, warps, stages in tiles:
        programs = ceil_div(case.rows, m) * ceil_div(case.d_out, n)
        possible = [p for p in (1, 2, 4, 8, 16, 32, 64) if programs * p * 3 >= machine.processors]
        configs += [Config(m, k, n, p, warps, stages) for p in possible if p == 1 or programs * p <= most]
    return list(dict.fromkeys(configs))


def attempt(call: Call) -> Call | None:
    try:
        return captured(call, DEVICE)
    except Exception as err:  # a rival that is not there, a config that does not fit
        print(f"    left out: {str(err).splitlines()[0][:120]}")
        return None


def sweep(inputs: Inputs, timer: Timer, limit: int = 10_000) -> list[tuple[Config, float]]:
    """Configs by their time, fastest first; those beyond 1.3 of the best after a few rounds are not timed again."""
    calls = {config: attempt(inputs.ours(config)) for config in wide_list(inputs.case)[:limit]}
    named = {str(config): (config, call) for config, call in calls.items() if call is not None}
    first = {name: statistics.median(ms) for name, ms in timer({n: c for n, (_, c) in named.items()}, 5).items()}
    best = min(first.values())
    kept = {name: named[name][1] for name in first if first[name] < 1.3 * best}
    second = {name: statistics.median(ms) for name, ms in timer(kept, 15).items()}
    return sorted(((named[name][0], ms) for name, ms in second.items()), key=lambda pair: pair[1])


def relative_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    return float((actual.double() - exact).norm() / exact.norm())


def measure(inputs: Inputs, timer: Timer, configs: dict[str, Config | None]) -> dict[str, object]:
    """A row: medians and spreads of all variants in turns, errors against float64."""
    exact = inputs.exact()
    calls: dict[str, Call] = {}
    errors: dict[str, float] = {}
    makers: dict[str, Call] = {name: inputs.ours(config) for name, config in configs.items()}
    nothing = torch.zeros(8, device=DEVICE)
    makers["nothing"] = nothing.zero_
    for name, call in (*makers.items(), *inputs.rivals()):
        replay = attempt(call)
        if replay is not None:
            calls[name] = replay
    times = timer(calls)
    for name, replay in calls.items():  # what the last of many replays left
        if name not in ("copy", "negation", "nothing"):
            errors[name] = relative_error(replay.kept if isinstance(replay, Replay) else replay(), exact)
    medians = {name: statistics.median(ms) for name, ms in times.items()}
    spread = {name: max(ms) - min(ms) for name, ms in times.items()}
    copy = min(medians["copy"], medians["negation"])
    bf16 = min(medians["bf16"], medians["bf16 turned"])
    ours = medians["ours"]
    row: dict[str, object] = {
        "case": asdict(inputs.case), "bytes": inputs.bytes, "ms": medians, "spread_ms": spread, "errors": errors,
        "share_of_copy": copy / ours, "of_bf16": bf16 / ours,
        "of_torch": medians["torch"] / ours if "torch" in medians else None,
        "configs": {name: None if config is None else asdict(config) for name, config in configs.items()},
    }  # fmt: skip
    rival = f"{medians['torch'] / ours:5.2f}" if "torch" in medians else "  -  "
    print(
        f"{inputs.case!s:42} {1e3 * ours:6.1f} us  copy {copy / ours:5.2f}  bf16 {bf16 / ours:5.2f}  torch {rival}"
        f"  default {1e3 * medians.get('default', ours):6.1f}  nothing {1e3 * medians['nothing']:.1f}"
        f"  error {errors['ours']:.1e} (bf16 {errors['bf16']:.1e})"
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--sweep", action="store_true", help="time a wide list of configs first")
    add("--warm", default="", metavar="I/N", help="compile a share of the sweep, and time nothing")
    add("--rounds", type=int, default=41)
    add("--only", type=int, nargs="*", default=[], metavar="ROWS", help="cases of so many rows")
    wanted = parser.parse_args()
    cases = [case for case in CASES if not wanted.only or case.rows in wanted.only]
    if wanted.warm:
        warm(cases, wanted.warm)
        return
    timer, rows = Timer(wanted.rounds, DEVICE), []
    print(torch.cuda.get_device_name(), torch.__version__, triton.__version__)
    for case in cases:
        inputs = Inputs(case)
        configs: dict[str, Config | None] = {"ours": None}
        swept: list[tuple[Config, float]] = []
        if wanted.sweep:
            swept = sweep(inputs, timer)
            for config, ms in swept[:4]:
                print(f"    {1e3 * ms:6.1f} us  {tuple(asdict(config).values())}")
            default = quantized_linear.default(case.rows, case.d_in, case.d_out, case.bits, 2, machine_at(0))
            configs = {"ours": swept[0][0], "default": default}
        row = measure(inputs, timer, configs)
        row["swept"] = [(list(asdict(config).values()), ms) for config, ms in swept[:40]]
        rows.append(row)
        write(rows)


def warm(cases: list[Case], part: str) -> None:
    index, count = map(int, part.split("/"))
    seen: set[tuple[object, ...]] = set()
    for case in cases:
        inputs = Inputs(case)
        for config in wide_list(case):
            numbers = asdict(config) | {"parts": config.parts > 1}
            kind = (case.bits, case.rows == 1, *numbers.values())
            if kind in seen:
                continue
            seen.add(kind)
            if len(seen) % count == index:
                try:
                    inputs.ours(config)()
                except Exception as err:  # too large for the machine: the sweep says so
                    print(str(err).splitlines()[0][:100])
    torch.cuda.synchronize()


def write(rows: list[dict[str, object]]) -> None:
    name = torch.cuda.get_device_name().split()[-1].lower()
    folder = Path(os.environ.get("OUT") or Path(__file__).parent / "data")
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    target = folder / f"quantized-{name}-{date}.json"
    target.write_text(json.dumps({**about, "date": date, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
