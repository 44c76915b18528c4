"""The configs of an optimizer's step, and its place of choice that the autotuner knows.

AdamW, Adam, SGD and Lion share them: each walks the same table of addresses, a block of one chunk at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable, register_tunable
from burn_kernels.launch import Machine
from burn_kernels.tensor_table import CHUNK, table

__all__ = ["Config", "candidates", "default", "step_tunable"]


# -- configs -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config:
    """Programs of `block` elements, `warps` of 32 threads: several share a chunk."""

    block: int
    warps: int


def default(machine: Machine) -> Config:
    """The config that is used without timing."""
    return candidates(machine)[0]


def candidates(machine: Machine) -> list[Config]:
    """Lists the configs that a tuner may try, the default first."""
    return [Config(512, 2), Config(512, 4), Config(1024, 4), Config(1024, 8), Config(256, 1)]


# -- selection ---------------------------------------------------------------------------------------
def step_tunable(
    name: str,
    run: Callable[..., object],
    plain: Callable[..., object],
    step: Callable[..., None],
    *,
    states: int,
    options: dict[str, object],
    kinds: str,
    kernels: tuple[object, ...],
) -> Tunable:
    """The place of choice of an optimizer: `states` a parameter, `kinds` the flags of what users have most."""

    def work(config: Config, facts: Facts, machine: Machine) -> Work:
        count = facts.free[0] * CHUNK
        moved = (3 + 2 * (states if "s=" in facts.flags else 0)) * count * facts.dtype.itemsize
        live = 2.0 + 2.0 * states
        return Work(count // config.block, config.warps, config.block, 4, moved, 14 * count, 1.0, live)

    def trial(facts: Facts, inputs: Inputs) -> Trial:
        kinds = dict(word.split("=") for word in facts.flags.split())
        wanted = [facts.dtype, getattr(torch, kinds["g"])]
        if "s" in kinds:
            wanted += [getattr(torch, kinds["s"])] * states
        lead, size = 0 if facts.align == 16 else 1, facts.free[0] * CHUNK - 5
        groups = [[inputs.normal(lead + size, dtype=dtype)[lead:]] for dtype in wanted]
        for squares in groups[3:]:
            squares[0].abs_()
        extra: dict[str, Any] = {}
        if "copy" in kinds:
            extra["copies"] = [torch.empty_like(groups[0][0], dtype=getattr(torch, kinds["copy"]))]
        step_table = table(*groups, **extra)
        return Trial(
            tuple(groups),
            lambda given, config: run(*given, **options, config=config),
            lambda given: plain(*given, **options),
            timed=lambda given, config: step(step_table, **options, config=config),
        )

    return register_tunable(
        name=name,
        config=Config,
        facts=lambda dtype, chunks, aligned, kinds: Facts(
            (chunks,), (CHUNK,), dtype, 16 if aligned else 1, flags=kinds
        ),
        free=("chunks",),
        exact=("chunk",),
        candidates=lambda facts, machine: candidates(machine),
        supports=lambda config, facts: 8 <= config.block <= CHUNK,
        work=work,
        trial=trial,
        kernels=kernels,
        problems=lambda rows, cols, dtype: [
            Facts((-(-rows * cols // CHUNK),), (CHUNK,), dtype, flags=kinds.format(dtype=str(dtype)[6:]))
        ],
        shapes=((121_500, 1024),),  # GPT-2 with 124 million parameters
        dtype=torch.float32,
    )
