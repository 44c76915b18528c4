"""Decides which cases there are, and which of them a run times: all, those that have a bar and the few, or a few of
each.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from benchmarks._kernels import attending
from benchmarks._kernels.bars import FEW, ODD_WIDTHS, passes_in_order
from benchmarks._kernels.calls import op_cases, wanted
from benchmarks._kernels.own import OWN, rope_computed_cases
from benchmarks._kernels.problems import SIZES, gpt2, operations, random
from benchmarks._kernels.rivals import CHOSEN, Task, attention_task, task, tensors_task
from benchmarks._kernels.rows import Case
from benchmarks._kernels.timing import Timer
from burn_kernels import REGISTRY

__all__ = ["cases", "chosen", "chosen_cases", "in_this_run", "jax_tasks"]

Item = TypeVar("Item")


def cases(arguments: Any, timer: Timer) -> Iterator[Case]:
    """All cases, one at a time: each holds gigabytes."""
    for name, make, tag, options in operations():
        if name.startswith(wanted(arguments)):
            yield from op_cases(name, make, tag, arguments, timer, **options)
    yield from rope_computed_cases()
    for name, own in OWN.items():
        if name != "attention_packed":  # those of attention, once
            yield from own(arguments)


# -- chosen ones -------------------------------------------------------------------------------------
def chosen(arguments: Any) -> list[tuple[str, str]]:
    """Cases with the pass of each that this run times: of `CHOSEN`, behind those of the bars where they are judged, the
    ones asked for, in the order asked for, of them the part that is its, first what its file of rows lacks, or that
    alone."""
    few = [(case, one) for case, passes in CHOSEN.items() for one in passes]
    everything = list(dict.fromkeys([*passes_in_order(), *few])) if arguments.judged else few
    starts = wanted(arguments)
    asked = list(dict.fromkeys(pair for start in starts for pair in everything if pair[0].startswith(start)))
    mine = of_part(asked, arguments.part)
    lacking = [(case, passed) for case, passed in mine if (in_this_run(case), passed) not in arguments.there]
    return lacking if arguments.missing else lacking + [pair for pair in mine if pair not in lacking]


def of_part(items: Sequence[Item], part: str) -> list[Item]:
    """Every n-th from the i-th, where `part` is i/n; all where it is empty."""
    first, step = (int(number) for number in (part or "0/1").split("/"))
    return list(items[first::step])


def chosen_cases(arguments: Any, timer: Timer, pairs: Sequence[tuple[str, str]]) -> Iterator[Case]:
    """The cases of such pairs.  Beside those that have bars torch.compile in its mode that searches, too."""
    known = {f"{name} {tag}": (name, make, tag, options) for name, make, tag, options in operations()}
    for case, passed in pairs:
        named = in_this_run(case)
        name = named.partition(" ")[0]
        options_of_case = argparse.Namespace(**vars(arguments) | {"only": case, "best_mode": bool(arguments.judged)})
        if named in known:
            name, make, tag, options = known[named]
            generated = op_cases(name, make, tag, options_of_case, timer, **options)
        else:
            # torch.compile takes longer for a step of AdamW than for all the rest
            options_of_case.no_compile = arguments.no_compile or (name == "adamw" and not arguments.judged)
            generated = OWN[name](options_of_case)
        yield from (one for one in generated if (one.name, one.passed) == (named, passed))


def jax_tasks(arguments: Any) -> Iterator[Task]:
    """The chosen cases for JAX, from tensors that hold nothing.  Not those that are a launch and nothing else: what is
    measured of JAX has the host beside it."""
    device, SIZES.device = SIZES.device, "meta"
    try:
        known = {f"{name} {tag}": (name, make, options) for name, make, tag, options in operations()}
        attentions = {f"attention {problem.tag}": problem for problem in attending.PROBLEMS}
        groups = {"adamw 124M": ("adamw", 4), "lion 124M": ("lion", 3)}
        groups |= {f"{spec.name} {row.tag}": row.jax for spec in REGISTRY.values() for row in spec.rows if row.jax}
        for case, passed in chosen(arguments):
            named = in_this_run(case)
            jax_task: Task | None = None
            if _is_launch(case):
                continue
            if named in known:
                name, make, options = known[named]
                jax_task = task(named, passed, name, make(SIZES.rows), options)
            elif case in attentions:
                problem = attentions[case].small(64) if SIZES.tiny else attentions[case]
                jax_task = attention_task(case, passed, problem, gpu=device == "cuda")
            elif case in groups:
                jax_task = tensors_task(named, passed, *groups[case], gpt2(1.0))
            elif case.startswith("dropout"):
                jax_task = task(named, passed, "dropout", (random(SIZES.rows, 8192),), {"prob": 0.1})
            if jax_task is not None:
                yield jax_task
    finally:
        SIZES.device = device


def _is_launch(case: str) -> bool:
    size = re.search(r" (\d+)x(\d+)$", case)
    return size is not None and (int(size[1]) in FEW or int(size[2]) in ODD_WIDTHS[:2])


def in_this_run(case: str) -> str:
    """The case with the sizes that a tiny run has in their place."""
    name, _, tag = case.partition(" ")
    if not SIZES.tiny or name.startswith(("attention", "convolution", "rope", "batch_norm", "group_norm")):
        return case
    if name == "linear":
        return f"{name} {2 * SIZES.rows}x16x64 {tag.split()[-1]}"
    if name == "conv_block":
        return f"{name} 2x4x8x8"
    return f"{name} {re.sub('^8192x', f'{SIZES.rows}x', re.sub('^16384', str(2 * SIZES.rows), tag))}"
