"""A place in a launcher at which a config is chosen, and all that choosing needs to know of the kernel.

    FORWARD = register_tunable(name="softmax", config=Config, free=("rows",), exact=("cols",), candidates=..., ...)

    def forward(x, *, config=None):
        ...
        def run(config): launch(_forward, ..., warps=config.warps, BLOCK=config.block)
        FORWARD.run(x, config, (x.dtype, rows, cols, (stride,), x.data_ptr() & 15), run)

Candidate 0 is the default: it is what runs with selection off, under the interpreter, and where a launch is recorded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch

from burn_kernels._triton import INTERPRETED
from burn_kernels.arguments import checked
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.inputs import Inputs
from burn_kernels.autotune.key import Candidate, Facts, alignment, key_text, row_facts
from burn_kernels.autotune.levels import EPOCH, is_deterministic
from burn_kernels.autotune.selection import current
from burn_kernels.autotune.trial import Trial
from burn_kernels.errors import KernelArgumentError
from burn_kernels.jitted import kernel_hash
from burn_kernels.launch import Machine, machine_of, recorded
from burn_kernels.registry import Registry, registering

__all__ = ["TUNABLES", "Inputs", "Tunable", "register_tunable", "tunable"]

R = TypeVar("R")


@checked
@dataclass(frozen=True, eq=False, kw_only=True)
class Tunable:
    """A kernel with several configs."""

    name: str
    """The operation, as keys and reports call it."""
    config: type[Any]
    """A dataclass of whole numbers."""
    facts: Callable[..., Facts] = row_facts
    """(*call), the tuple of values that a launcher builds in no time -> the facts of the call."""
    free: tuple[str, ...] = ("rows",)
    """Names of the sizes that go into buckets."""
    exact: tuple[str, ...] = ("cols",)
    """Names of the sizes that do not."""
    candidates: Callable[[Facts, Machine], Sequence[object]]
    """Configs that may be tried for a problem, the default first."""
    supports: Callable[[Any, Facts], bool]
    """Tells if a config is legal for a problem as it really is.  Asked at every use, so quick."""
    work: Callable[[Any, Facts, Machine], Work]
    """The work that a config makes of a problem, for the cost model."""
    trial: Callable[[Facts, Inputs], Trial]
    """A problem like the one given, with inputs of its own."""
    kernels: tuple[Any, ...]
    """Its kernels: functions, or the name of a module whose kernels all belong to it."""
    problems: Callable[[int, int, torch.dtype], Sequence[Facts]]
    """(rows, cols, dtype) -> the problems that users with such tensors have, packed; one for each set of flags."""
    shapes: Sequence[tuple[int, int]] = tuple((8192, cols) for cols in (1024, 4096, 5120, 8192, 16_384, 32_768))
    """The shapes that `python -m burn_kernels tune` measures without --shapes."""
    dtype: torch.dtype = torch.bfloat16
    """The type in which it does."""
    elements: Callable[[Facts], int] = lambda facts: math.prod(facts.free) * math.prod(facts.exact)
    """Numbers in the tensors of a problem, roughly: how much memory, and time on a CPU, a trial takes."""
    judged_in: Callable[[Facts], torch.dtype] = lambda facts: facts.dtype
    """The type whose digits results have: another one than the tensors' where products are rounded (tf32)."""

    @functools.cached_property
    def kernel(self) -> str:
        """The hash of the kernels: timings are worth something for this one."""
        return kernel_hash(*self.kernels)

    def key(self, facts: Facts) -> str:
        """The line of text that stands for the problem's bucket."""
        return key_text(self.name, self.free, self.exact, facts)

    def default(self, facts: Facts, machine: Machine) -> Any:
        """Candidate 0."""
        return self.candidates(facts, machine)[0]

    def named(self, facts: Facts, machine: Machine) -> dict[str, Any]:
        """The candidates by name, the default first."""
        return {Candidate.of(config).name: config for config in self.candidates(facts, machine)}

    def parse(self, numbers: Mapping[str, int]) -> object:
        """The config with these numbers.

        Raises: ValueError if they are not the fields of this kernel's configs.
        """
        names = {field.name for field in fields(self.config)}
        if set(numbers) != names or not all(type(value) is int for value in numbers.values()):
            raise ValueError(f"a config of {self.name} has the whole numbers {', '.join(sorted(names))}")
        return self.config(**numbers)

    def run(self, like: torch.Tensor, config: object, call: tuple[object, ...], launch: Callable[[Any], R]) -> R:
        """Launches with `config`, or, where it is None, with the one chosen for the call on the device of `like`.

        Returns what `launch` does.  `call` is what `facts` takes; it alone is made and looked up where the call is
        known, which costs a microsecond.
        """
        if config is not None:
            return launch(config)
        if like.is_cuda and recorded() is None and not INTERPRETED:
            return self.run_on(like.get_device(), call, launch)
        return launch(self.default(self.facts(*call), machine_of(like)))

    def run_on(self, index: int, call: tuple[object, ...], launch: Callable[[Any], R]) -> R:
        """Launches on the GPU with this number; a config that fails is quarantined, and the next one is taken."""
        selector = current()
        known = selector.known.get((self.name, index, is_deterministic(), call))
        if known is None or known[0].wanting:
            known = selector.meet(self, index, call)
        decision, facts = known
        config = decision.config
        if not self.supports(config, facts):
            config = selector.fitting(self, decision, facts)
        try:
            return launch(config)
        except Exception as error:
            return selector.rescue(self, decision, facts, config, error, launch)

    def settled(self, index: int, call: tuple[object, ...], config: object) -> Callable[[], bool] | None:
        """The function that tells if `config` is still the one for a call; None if it is not, or a measurement is due.

        For who launches again without asking here: 0.2 us.
        """
        fixed, selector = is_deterministic(), current()
        known = selector.known.get((self.name, index, fixed, call))
        if known is None or known[0].wanting or known[0].config != config:
            return None
        decision, config, now = known[0], known[0].config, EPOCH[0]

        def holds() -> bool:
            return EPOCH[0] == now and decision.config is config and is_deterministic() is fixed

        return holds


TUNABLES: Registry[Tunable] = Registry()
"""Every place at which a config is chosen, by name."""


def tunable(choice: Tunable) -> Tunable:
    """Adds a tunable to the registry and returns it."""
    if TUNABLES.holds(choice.name):
        raise KernelArgumentError(
            f"the tunable {choice.name!r} is registered twice",
            given=f"from {choice.trial.__module__}",
            expected=f"one a name; {choice.name!r} is from {TUNABLES[choice.name].trial.__module__}",
            mend="give the new one another name",
        )
    TUNABLES[choice.name] = choice
    return choice


register_tunable = registering(Tunable, tunable)


def row_candidates(candidates: Callable[..., Sequence[Any]], **options: Any) -> Callable[[Facts, Machine], Any]:
    """For kernels over rows: the candidates by the length of a row and the bytes of an element."""
    return lambda facts, machine: candidates(facts.exact[0], facts.dtype.itemsize, machine, **options)


def row_problems(*flags: str) -> Callable[[int, int, torch.dtype], list[Facts]]:
    """For kernels over packed rows: a problem for each of these flags."""
    return lambda rows, cols, dtype: [
        Facts((rows,), (cols,), dtype, alignment(cols * dtype.itemsize), flags=flag) for flag in flags or ("",)
    ]
