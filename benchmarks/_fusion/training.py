"""Whole training steps with fusion and without, beside torch and JAX; what they compute is compared first."""

from __future__ import annotations

import argparse
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from benchmarks._kernels.judged import Verdict
from benchmarks._steps import extras
from benchmarks._steps.cases import COMPILE, COMPILE_GRAPH, COMPILED, MODES_SECONDS, TORCH, Case, all_cases, values_of
from benchmarks._steps.jax_variant import JaxStep
from benchmarks._steps.measure import NO_TIME, Bar, Variant, close, judge, measure, prepare, table
from benchmarks._steps.our_variants import FUSED, Ours
from benchmarks._steps.torch_variants import TorchStep

__all__ = ["Found", "gpt2", "mnist"]

SECONDS = 8.0
"""For the turns of a case, building not counted."""
TRACES = 1
"""How often a step may be traced: a program that is traced again measures its own making."""

Left = Callable[[], float]


@dataclass
class Found:
    """Holds what one case gave."""

    rows: dict[str, Any]
    verdicts: list[Verdict] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def mnist(arguments: argparse.Namespace, left_s: Left) -> Iterator[Found]:
    """The CNN of Burn's guide with dropout, at batches of 64 and 512."""
    cases = [case for case in all_cases(arguments.device, arguments.quick)["mnist"] if case.random][:2]
    for number, (case, most) in enumerate(zip(cases, (0.6, 0.77), strict=True)):
        share = left_s() / (len(cases) - number)
        yield _case(replace(case, bars=(Bar(most, JaxStep.name),)), arguments, share, jax=True)


def gpt2(arguments: argparse.Namespace, left_s: Left) -> Iterator[Found]:
    """124 million parameters in mixed precision; on a CPU a tiny one."""
    (case,) = all_cases("cuda", arguments.quick or arguments.device == "cpu")["gpt2"]
    bars = (Bar(1 / 1.15, COMPILE), Bar(0.7, COMPILE, of="peak_mib"), Bar(1.0, COMPILE_GRAPH, goal=True))
    yield _case(replace(case, bars=bars), arguments, left_s(), jax=False)


def _variants(case: Case, values: Any, arguments: argparse.Namespace, jax: bool) -> list[Variant]:
    """The reference first, then the fused step and torch's rivals of bars; what a short time can do without is last."""
    device = arguments.device
    chosen: list[Variant] = [TorchStep(case, values, device, TORCH)]
    judged = {bar.rival for bar in case.bars if not bar.goal}
    rivals = [name for name in (COMPILE, COMPILE_GRAPH) if device == "cuda"]
    if arguments.no_compile or arguments.quick:
        rivals = []
    chosen += [TorchStep(case, values, device, name) for name in rivals if name in judged]
    chosen.append(Ours(case, values, device, FUSED))
    if jax and not arguments.no_jax:
        precision = "tensorfloat32" if device == "cuda" else "float32"
        threads = torch.get_num_threads()
        chosen.append(JaxStep(case, values, device, python=arguments.jax_python, precision=precision, threads=threads))
    chosen.append(Ours(case, values, device, COMPILED))
    chosen += [TorchStep(case, values, device, name) for name in rivals if name not in judged]
    return chosen


def _case(case: Case, arguments: argparse.Namespace, share_s: float, *, jax: bool) -> Found:
    end = time.monotonic() + share_s
    values = values_of(case)
    variants = _variants(case, values, arguments, jax)
    print(f"\n{case.name}, {share_s:.0f} s", flush=True)
    seconds = 0.3 if arguments.quick else SECONDS

    def left(variant: Variant) -> float:
        needed = MODES_SECONDS.get(variant.name, (0.0, 0.0))[arguments.device == "cuda"]
        return end - time.monotonic() - seconds - needed

    tolerance = None if case.random else max(case.tolerance, 5e-3)
    results = prepare(variants, tolerance, left)
    visit_s, rounds = (0.001, 5) if arguments.quick else (case.visit_s, 101)
    measure(variants, results, visit_s=visit_s, seconds=seconds, rounds=rounds)
    for line in table(results):
        print(line, flush=True)
    rows: dict[str, Any] = {"case": case.name, "rows": [result.row() for result in results]}
    outcome = Found(rows)
    working = {result.variant for result in results if result.us and not result.why}
    for variant, result in zip(variants, results, strict=True):
        if isinstance(variant, Ours) and result.why and result.why != NO_TIME:
            outcome.wrong.append(f"{case.name}: {variant.name}: {result.why}")
        if isinstance(variant, Ours) and variant.name in working and (variant.traces or 0) > TRACES:
            outcome.wrong.append(f"{case.name}: {variant.name} was traced {variant.traces} times")
        if isinstance(variant, JaxStep) and not result.why:
            result.peak_mib, rows["jax"] = variant.peak_mib, variant.version
    fused = next(variant for variant in variants if variant.name == FUSED)
    if FUSED in working:
        assert isinstance(fused, Ours)
        rows["kernels"] = _kernels(fused)
        print(f"  {FUSED}: {rows['kernels']}")
        if arguments.profile and arguments.device == "cuda":
            lines, reason = extras.told(lambda: extras.gpu_kernels(fused, 5 if case.half else 20))
            print("\n".join(lines or [f"  no profile: {reason}"]), flush=True)
    for bar in judge(case.bars, results, FUSED):
        asked = f"{'goal: ' if bar['goal'] else ''}{bar['of']} / {bar['rival']}, at most"
        ratio, most = bar["ratio"], bar["at_most"]
        outcome.verdicts.append(Verdict(case.name, "step", asked, ratio, most, ratio is not None and ratio <= most))
    for variant in variants:
        close(variant)
    gc.collect()
    torch._dynamo.reset()
    if arguments.device == "cuda":
        torch.cuda.empty_cache()
    return outcome


def _kernels(variant: Ours) -> dict[str, Any]:
    """How many kernels the step is, and how many of them are generated."""
    program = next(reversed(variant.function._programs.values()))
    if program.plan is None:
        return {}
    counts: dict[str, Any] = {"kernels": program.plan.kernels, "generated": len(program.plan.groups)}
    counts["different"] = len({group.body for group in program.plan.groups})
    ranks = Counter(
        f"{node.call.op.name.removeprefix('fusion::')} {node.call.attrs['rank']}"
        for node in program.plan.graph.nodes
        if "rank" in node.call.attrs
    )
    counts["by cuBLASLt"] = dict(ranks)
    if program.recorded is not None:
        counts["launches"] = program.recorded.launches
        counts["splits"] = [str(split) for split in program.recorded.splits]
    return counts
