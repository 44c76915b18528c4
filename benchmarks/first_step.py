"""Measures what the first steps of a compiled training step take, with empty caches or with what an earlier run left
there.

    python benchmarks/first_step.py --case gpt2                  fused and unfused, each in a process of its own
    python benchmarks/first_step.py --case gpt2 --caches DIR     caches in DIR, whatever is there
    python benchmarks/first_step.py --case mnist --profile       where the time goes, by function too

Parts: making the model; each of the first three steps, waited for; Triton's compilations in this process, each by
name, and how many came from a cache.  A row a variant goes to $OUT/first-step-<case>.json.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "kernels"))  # works with nothing installed
sys.path.insert(0, str(ROOT))

STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=["gpt2", "mnist"], default="gpt2")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--caches", type=Path, help="a folder for all caches, kept")
    parser.add_argument("--only", choices=["fused", "unfused"])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(measured(arguments)))
        return
    rows = []
    for name in ["unfused", "fused"] if arguments.only is None else [arguments.only]:
        with tempfile.TemporaryDirectory() as fresh:
            rows.append(_in_process(arguments, name, arguments.caches or Path(fresh)))
    folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "data")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"first-step-{arguments.case}.json").write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")


def _in_process(arguments: argparse.Namespace, name: str, caches: Path) -> dict[str, Any]:
    environment = dict(os.environ)
    environment |= {"TRITON_CACHE_DIR": str(caches / "triton"), "BURN_TORCH_CACHE": str(caches / "burn_torch")}
    environment |= {"XDG_CACHE_HOME": str(caches / "xdg")}
    command = [sys.executable, __file__, "--inside", "--case", arguments.case, "--only", name]
    command += ["--device", arguments.device] + ["--profile"] * arguments.profile + ["--tiny"] * arguments.tiny
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    steps = " ".join(f"{s:.2f}" for s in row["steps_s"])
    print(f"{arguments.case} {name}: model {row['model_s']:.2f} s, steps {steps} s; {row['compiled']} kernels compiled"
          f" here in {row['compiling_s']:.2f} s, {row['cached']} from caches", flush=True)  # fmt: skip
    slowest = ", ".join(f"{kernel} {s:.2f}" for kernel, s in row["slowest"])
    print(f"    slowest: {slowest}\n" + row["profile"] + done.stderr[-600:], flush=True)
    return row


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """One variant, in this process."""
    import torch

    from benchmarks._steps.cases import COMPILED, all_cases, values_of
    from benchmarks._steps.our_variants import FUSED, Ours

    case = all_cases(arguments.device, arguments.tiny)[arguments.case][0]
    values = values_of(case)
    place = "cuda:0" if arguments.device == "cuda" else "cpu"
    if place != "cpu":
        torch.zeros(1, device=place)
    ours = Ours(case, values, place, FUSED if arguments.only == "fused" else COMPILED)
    begun = time.perf_counter()
    ours.start()
    ours.wait()
    row: dict[str, Any] = {"variant": ours.name, "model_s": time.perf_counter() - begun, "steps_s": []}
    profile = cProfile.Profile()
    with _compilations() as compilations:
        for i in range(STEPS):
            begun = time.perf_counter()
            if arguments.profile:
                profile.enable()
            ours.read(ours.step(i))
            profile.disable()
            ours.wait()
            row["steps_s"].append(time.perf_counter() - begun)
    compiled = [(name, s) for name, s, cached in compilations if not cached]
    row |= {
        "compiled": len(compiled),
        "compiling_s": sum(s for _, s in compiled),
        "cached": len(compilations) - len(compiled),
    }
    row["slowest"] = sorted(compiled, key=lambda entry: -entry[1])[:8]
    row["all"] = compilations
    row["profile"] = _describe_profile(profile) if arguments.profile else ""
    return row


@contextmanager
def _compilations() -> Iterator[list[tuple[str, float, bool]]]:
    """Each compilation of Triton: name, seconds, and whether a cache had it."""
    compilation_times: list[tuple[str, float, bool]] = []
    try:
        from triton import knobs
    except ImportError:
        yield compilation_times
        return
    before = knobs.compilation.listener

    def listen(*, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        compilation_times.append((src.name, times.total * 1e-6, cache_hit))
        if before is not None:
            before(src=src, metadata=metadata, metadata_group=metadata_group, times=times, cache_hit=cache_hit)

    knobs.compilation.listener = listen
    try:
        yield compilation_times
    finally:
        knobs.compilation.listener = before


def _describe_profile(profile: cProfile.Profile) -> str:
    """The functions of this project and of Triton that took longest, with what they call, then alone."""
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # pstats has no stub for it
    lines = []
    for key, title in ((3, "with what they call"), (2, "alone")):
        lines.append(f"    {title}:")
        for (file, line, name), entry in sorted(stats.items(), key=lambda item: -item[1][key])[:45]:
            place = "/".join(file.split("/")[-3:])
            lines.append(f"      {entry[key]:8.2f} s {entry[0]:8} calls  {place}:{line} {name}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
