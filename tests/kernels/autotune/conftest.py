"""A device, a clock and a kernel that are not there: all of selection's logic runs on the CPU, in no time."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from burn_kernels.autotune import levels
from burn_kernels.autotune.cost import Work
from burn_kernels.autotune.errors import AutotuneWarning
from burn_kernels.autotune.key import Device, Facts
from burn_kernels.autotune.selection import Selector
from burn_kernels.autotune.store import Store
from burn_kernels.autotune.trial import Trial
from burn_kernels.autotune.tunable import Inputs, Tunable
from burn_kernels.autotune.tuner import Budget
from burn_kernels.launch import H200


@dataclass(frozen=True)
class Cut:
    """The fake kernel's config."""

    block: int
    warps: int


@dataclass
class Fake:
    """A kernel y = 2 x whose configs behave as told, and the clock and device on which it runs."""

    configs: list[Cut] = field(default_factory=lambda: [Cut(64, 4), Cut(128, 4), Cut(256, 8)])
    times: dict[Cut, float] = field(default_factory=dict)
    """Milliseconds that a config takes; 1 if it is not named."""
    faults: dict[Cut, str] = field(default_factory=dict)
    """`value`, `tail`, `past`, `before`, `input`, `raises`, `breaks`, `nan`, `memory`."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    now_s: float = 0.0
    broken: bool = False
    ran: list[Cut] = field(default_factory=list)
    spare: int = 1 << 40
    aligned: bool = False
    """Says whether configs of 256 need 16-byte alignment."""

    # -- the kernel
    def double(self, x: torch.Tensor, config: Cut) -> torch.Tensor:
        self.ran.append(config)
        out = torch.empty_like(x)
        fault = self.faults.get(config, "")
        if fault == "raises":
            raise ValueError(f"block {config.block} does not fit")
        if fault == "breaks":
            self.broken = True
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if fault == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory")
        out.copy_(x * 2)
        if fault == "value":
            out[0] += 1.0
        if fault == "tail":
            out[-1:].fill_(float("nan"))
        if fault == "nan":
            out[:] = torch.where(x > 0, float("nan"), out)
        if fault in ("past", "before"):
            at = out.storage_offset() + (out.numel() if fault == "past" else -1)
            out.as_strided((1,), (1,), at).fill_(0.0)
        if fault == "input":
            x[0] = 7.0
        return out

    def tunable(self, name: str = "double") -> Tunable:
        def trial(facts: Facts, inputs: Inputs) -> Trial:
            x = inputs.normal(facts.free[0] * facts.exact[0], dtype=facts.dtype)
            return Trial((x,), lambda given, config: self.double(given[0], config), lambda given: given[0] * 2)

        return Tunable(
            name=name,
            config=Cut,
            facts=Facts,
            free=("rows",),
            exact=("cols",),
            candidates=lambda facts, machine: self.configs,
            supports=lambda config, facts: not (self.aligned and config.block == 256 and facts.align < 16),
            work=lambda config, facts, machine: Work(1000, config.warps, config.block, 4, 1000, 1000),
            trial=trial,
            kernels=("burn_kernels.prims",),
            problems=lambda rows, cols, dtype: [Facts((rows,), (cols,), dtype)],
            shapes=((8, 4), (100, 4)),
            dtype=torch.float32,
        )

    # -- the clock
    def milliseconds(self, call: Callable[[], Any]) -> float:
        call()
        took = self.times.get(self.ran[-1], 1.0)
        self.now_s += took / 1000
        return took

    def settle(self) -> None:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def aside(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def spare_bytes(self) -> int:
        return self.spare

    # -- the selector
    def selector(self, store: Store | None = None, **parts: Any) -> Selector:
        parts.setdefault("table", lambda *_: [])
        parts.setdefault("budget", Budget(now=lambda: self.now_s))
        return Selector(
            store or Store(None),
            devices=lambda index: Device("Fake 1", H200),
            clocks=lambda index: self,
            capturing=parts.pop("capturing", lambda index: False),
            **parts,
        )


FACTS = Facts((100,), (4,), torch.float32)


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, and the level as a fresh process has it."""
    for name in ("BURN_KERNELS_AUTOTUNE", "BURN_KERNELS_LOCK", "BURN_KERNELS_LOCK_MODE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "cache"
    monkeypatch.setenv("BURN_KERNELS_CACHE", str(folder))
    monkeypatch.setattr(levels, "_level", None)
    return folder


@pytest.fixture
def heard() -> Callable[[Callable[[], Any]], tuple[Any, list[str]]]:
    """Runs a call; gives its result and what it warned of."""

    def run(call: Callable[[], Any]) -> tuple[Any, list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = call()
        assert all(issubclass(item.category, AutotuneWarning) for item in caught)
        return result, [str(item.message) for item in caught]

    return run


@pytest.fixture
def use() -> Callable[..., Cut]:
    """Launches the fake kernel through a selector, as a launcher would; gives the config that ran."""
    from burn_kernels.autotune import selection

    def run(selector: Selector, tunable: Tunable, facts: Facts = FACTS, fails: Sequence[Cut] = ()) -> Cut:
        launched: list[Cut] = []

        def launch(config: Cut) -> None:
            if config in fails:
                raise RuntimeError("out of resource: shared memory")
            launched.append(config)

        with selection.selecting(selector):
            tunable.run_on(0, facts, launch)
        return launched[-1]

    return run
