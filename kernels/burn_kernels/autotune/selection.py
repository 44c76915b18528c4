"""Chooses a config: the lockfile's, the fastest that was measured, the shipped table's, the cost model's, the default.

The first call of a key never waits for a measurement.  What was decided is kept by the facts of the call, so a second
call costs one look into a dict and the question whether the config supports the problem.  At levels `on` and `full` a
key without timings is measured here, when nothing forbids it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from burn_kernels.arguments import checked
from burn_kernels.autotune import levels, shipped
from burn_kernels.autotune.clock import Clock, GpuClock
from burn_kernels.autotune.cost import choice, predict
from burn_kernels.autotune.errors import AutotuneWarning, CandidateError, LockfileError
from burn_kernels.autotune.key import Candidate, Device, Facts, device_of, software
from burn_kernels.autotune.lockfile import Lockfile, Pin
from burn_kernels.autotune.race import ranking
from burn_kernels.autotune.settings import setting
from burn_kernels.autotune.store import FILE, Fault, Place, Store, cache_folder, merged
from burn_kernels.autotune.tuner import Budget, is_sticky, measure
from burn_kernels.errors import KernelError, KernelLimitError

if TYPE_CHECKING:  # a tunable asks the selector
    from burn_kernels.autotune.tunable import Tunable

__all__ = ["Decision", "Selector", "current", "lock", "still", "unlock"]

R = TypeVar("R")

MOST_KNOWN = 8192
"""Problems that are remembered; past it all are forgotten, and their keys looked up again."""
SECOND_USE = 2


def _capturing(index: int) -> bool:
    """Tells if launches on this GPU now go into a CUDA graph."""
    if index == torch.cuda.current_device():
        return torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(index):
        return torch.cuda.is_current_stream_capturing()


@dataclass
class Decision:
    """The decision for a key."""

    tunable: Tunable
    index: int
    place: Place
    facts: Facts
    """The facts of the first call, which a measurement takes."""
    ranking: dict[str, object]
    """Configs by candidate name, the best first."""
    source: str
    """`locked`, `measured`, `shipped`, `model` or `default`."""
    config: Any
    wanting: bool = False
    """True if the next use should look here again, since a measurement is due."""
    uses: int = 0


@checked
@dataclass
class Selector:
    """Decides for all kernels of a process; its parts can be replaced, which is how tests run it without a GPU."""

    store: Store
    devices: Callable[[int], Device] = device_of
    clocks: Callable[[int], Clock] = GpuClock
    capturing: Callable[[int], bool] = _capturing
    table: Callable[..., list[Mapping[str, int]]] = shipped.configs
    budget: Budget = field(default_factory=Budget)
    lockfile: Lockfile | None = None
    most: int | None = None
    """Candidates of a key that are measured, by the cost model's order; None for all."""
    known: dict[tuple[str, int, bool, tuple[Any, ...]], tuple[Decision, Facts]] = field(default_factory=dict)
    """By tunable, device, deterministic mode, and what a launcher said of the call."""
    decisions: dict[tuple[Place, bool], Decision] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._guard = threading.RLock()
        self._measuring = threading.Lock()
        self._clocks: dict[int, Clock] = {}

    # -- deciding --------------------------------------------------------------------------------
    def meet(self, tunable: Tunable, index: int, call: tuple[object, ...]) -> tuple[Decision, Facts]:
        """The decision for a call that is not known yet, or of which a measurement is due; and its facts."""
        fixed = levels.is_deterministic()
        facts = tunable.facts(*call)
        answer = self.decide(tunable, index, facts, fixed), facts
        with self._guard:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[tunable.name, index, fixed, call] = answer
        return answer

    def decide(self, tunable: Tunable, index: int, facts: Facts, fixed: bool) -> Decision:
        """The decision for a key."""
        with self._guard:
            device = self.devices(index)
            place = Place(tunable.kernel, tunable.key(facts), str(device), software())
            decision = self.decisions.get((place, fixed))
            if decision is None:
                decision = self._decide_anew(tunable, index, facts, device, place, fixed)
                self.decisions[place, fixed] = decision
            decision.uses += 1
            due = decision.wanting and decision.uses >= (1 if levels.level() == "full" else SECOND_USE)
        # another thread that measures is not waited for: this call takes what holds now
        if due and not self.capturing(index) and self._measuring.acquire(blocking=False):
            try:
                self._measure(decision, again=False)
            except (CandidateError, KernelLimitError):
                raise
            except Exception as error:  # the call itself can go on; what stood in the way is said
                warn(f"{decision.place.key} could not be measured: {type(error).__name__}: {_line(error)}")
            finally:
                self._measuring.release()
        return decision

    def _decide_anew(
        self, tunable: Tunable, index: int, facts: Facts, device: Device, place: Place, fixed: bool
    ) -> Decision:
        level = levels.level()
        if self.lockfile is not None:
            pin = self.lockfile.find(place.key, place.device, place.kernel)
            if pin is not None:
                name, config = self._read_pin(self.lockfile, pin, tunable, facts)
                return Decision(tunable, index, place, facts, {name: config}, "locked", config)
        source, order = self._rank(tunable, facts, device, place, plain=fixed or level == "off")
        config = self._first(tunable, order, facts, place.key)
        if self.lockfile is not None:
            candidate = Candidate.of(config)
            self.lockfile.append(Pin(place.key, place.device, place.kernel, candidate.config))
            return Decision(tunable, index, place, facts, {candidate.name: config}, "locked", config)
        decision = Decision(tunable, index, place, facts, order, source, config)
        decision.wanting = level in ("on", "full") and not fixed and source != "measured" and len(order) > 1
        return decision

    def plan(self, tunable: Tunable, index: int, facts: Facts) -> Decision:
        """A decision to measure by: what timings, table and model say, whatever level or lockfile hold now."""
        device = self.devices(index)
        place = Place(tunable.kernel, tunable.key(facts), str(device), software())
        source, order = self._rank(tunable, facts, device, place, plain=False)
        return Decision(tunable, index, place, facts, order, source, next(iter(order.values()), None))

    def _rank(
        self, tunable: Tunable, facts: Facts, device: Device, place: Place, *, plain: bool
    ) -> tuple[str, dict[str, object]]:
        """The source of the ranking, and the ranking."""
        named = tunable.named(facts, device.machine)
        if plain:
            return "default", named
        faulty = {fault.candidate for fault in self.store.faults(place)} if self.store.there else set()
        sound = {name: config for name, config in named.items() if name not in faulty}
        timed = merged(self.store.timings(place)) if self.store.there else {}
        medians = {name: timed[name].median_ms for name in sound if name in timed}
        if medians:
            return "measured", _first_of(ranking(medians, list(named)), sound)
        hints = (_name_of(tunable, numbers) for numbers in self.table(tunable, facts, device))
        hinted = [name for name in hints if name in sound]
        if hinted:
            return "shipped", _first_of(hinted, sound)
        return self._predict_first(tunable, facts, device, sound)

    def _predict_first(
        self, tunable: Tunable, facts: Facts, device: Device, sound: dict[str, object]
    ) -> tuple[str, dict[str, object]]:
        if not sound:
            return "default", sound
        works = {name: tunable.work(config, facts, device.machine) for name, config in sound.items()}
        best = choice(works, device.machine)
        return ("default", sound) if best == next(iter(sound)) else ("model", _first_of([best], sound))

    def _read_pin(self, lockfile: Lockfile, pin: Pin, tunable: Tunable, facts: Facts) -> tuple[str, object]:
        try:
            config = tunable.parse(pin.config)
        except ValueError as error:
            raise lockfile.unusable(pin, str(error)) from error
        if not tunable.supports(config, facts):
            raise lockfile.unusable(pin, "it does not support this problem")
        return Candidate.of(config).name, config

    def _first(
        self, tunable: Tunable, order: Mapping[str, object], facts: Facts, key: str, reasons: Iterable[str] = ()
    ) -> object:
        for config in order.values():
            if tunable.supports(config, facts):
                return config
        raise KernelLimitError(  # so that callers fall back to the reference, and say so
            f"autotune: no candidate of {tunable.name} can run",
            given="; ".join([key, *reasons]),
            expected="at least one that supports the problem and does not fail",
            mend="python -m burn_kernels report shows them; passing config= overrides the choice",
        )

    def fitting(self, tunable: Tunable, decision: Decision, facts: Facts) -> Any:
        """The best config that supports a problem whose key's first choice does not."""
        if decision.source == "locked" and self.lockfile is not None:
            pin = Pin(decision.place.key, decision.place.device, decision.place.kernel, vars(decision.config))
            raise self.lockfile.unusable(pin, f"it does not support {facts}")
        return self._first(tunable, decision.ranking, facts, decision.place.key)

    # -- failing ---------------------------------------------------------------------------------
    def rescue(
        self,
        tunable: Tunable,
        decision: Decision,
        facts: Facts,
        config: object,
        error: Exception,
        launch: Callable[[Any], R],
    ) -> R:
        """Launches the next of the ranking after a config that failed, which is quarantined if another one works.

        Where none works the cause is not the configs (no compiler, say): nothing is quarantined, the error is raised.
        """
        first, failed = error, dict[str, str]()
        while True:
            name = Candidate.of(config).name
            if isinstance(error, (KernelError, torch.OutOfMemoryError)) or _is_of_a_capture(error):
                raise error  # a mistake of the caller, a lack of memory, a capture gone wrong are not the candidate's
            error.add_note(f"in {tunable.name} with {name}, for {decision.place.key}")
            if is_sticky(error):
                raise CandidateError(
                    f"autotune: the device failed under {tunable.name}",
                    given=f"{name} for {decision.place.key}: {_line(error)}",
                    expected="a launch, or an error that leaves the device usable",
                    mend="start the process again; an earlier kernel may be at fault: CUDA_LAUNCH_BLOCKING=1",
                ) from error
            if decision.source == "locked":
                raise LockfileError(
                    "autotune: the pinned config cannot be launched",
                    given=f"{name} for {decision.place.key}: {_line(error)}",
                    expected="a config that runs",
                    mend="take its line out of the lockfile",
                ) from error
            failed[name] = f"{type(error).__name__}: {_line(error)}"
            if self.capturing(decision.index):
                self._quarantine(decision, failed)
                raise CandidateError(
                    f"autotune: {tunable.name} could not be launched during the capture of a CUDA graph",
                    given=f"{name}: {_line(error)}",
                    expected="a warm-up call before the capture, as torch.cuda.graph asks for",
                    mend="capture again: the next config is taken then",
                ) from error
            left = [c for n, c in decision.ranking.items() if n not in failed and tunable.supports(c, facts)]
            if not left:
                raise first
            config = left[0]
            try:
                result = launch(config)
            except Exception as next_error:
                error = next_error
            else:
                self._quarantine(decision, failed)
                return result

    def _quarantine(self, decision: Decision, failed: Mapping[str, str]) -> None:
        with self._guard:
            decision.ranking = {n: c for n, c in decision.ranking.items() if n not in failed}
            decision.config = next(iter(decision.ranking.values()), decision.config)
        self.store.add(faults=[Fault(decision.place, name, "quarantined", why) for name, why in failed.items()])
        for name, why in failed.items():
            warn(f"{decision.place.key}: {name} is quarantined, its launch failed ({why}); the next one is taken")

    # -- measuring -------------------------------------------------------------------------------
    def measure(self, decision: Decision, *, again: bool = False) -> str:
        """Measures a key's candidates and decides anew; returns why there is nothing to keep, or an empty text.

        Raises: CandidateError if a candidate broke the device, KernelLimitError if no candidate is right.
        """
        if self.capturing(decision.index):
            return "a CUDA graph is being captured"
        with self._measuring:
            return self._measure(decision, again=again)

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """A block during which no thread measures; waits for one that does.  Calls inside take what holds now."""
        with self._measuring:
            yield

    def contenders(self, decision: Decision, *, again: bool = False) -> dict[str, object]:
        """The configs that a measurement of a key is between: those that fit, without those known to be faulty.

        With `most`, only so many: the default, and those for which the cost model predicts the least time.
        """
        tunable, facts, machine = decision.tunable, decision.facts, self.devices(decision.index).machine
        named = tunable.named(facts, machine)
        faulty = set() if again else {fault.candidate for fault in self.store.faults(decision.place)}
        sound = {n: c for n, c in named.items() if n not in faulty and tunable.supports(c, facts)}
        if self.most is None or len(sound) <= self.most:
            return sound
        first, *others = sound
        others.sort(key=lambda name: predict(tunable.work(sound[name], facts, machine), machine))
        kept = {first, *others[: self.most - 1]}
        return {name: config for name, config in sound.items() if name in kept}

    def _measure(self, decision: Decision, *, again: bool) -> str:
        tunable, place = decision.tunable, decision.place
        decision.wanting = False
        if decision.index not in self._clocks:
            self._clocks[decision.index] = self.clocks(decision.index)
        clock = self._clocks[decision.index]
        named = tunable.named(decision.facts, self.devices(decision.index).machine)
        if again:
            self.store.forget(place)
        sound = self.contenders(decision, again=again)
        outcome = measure(
            tunable,
            decision.facts,
            sound,
            place,
            clock=clock,
            budget=self.budget,
            eliminating=levels.level() != "full",
            on_loss=lambda fault: self.store.add(faults=[fault]),
        )
        for fault in outcome.faults:
            warn(f"{place.key}: {fault.candidate} is disqualified: {fault.reason}")
        if outcome.timings:  # where nothing works, the cause is not the candidates, and may be gone tomorrow
            self.store.add([] if outcome.why_not else outcome.timings, outcome.faults)
        medians = {timing.candidate: timing.median_ms for timing in outcome.timings}
        broken = {fault.candidate for fault in outcome.faults}
        left = {name: config for name, config in sound.items() if name not in broken}
        with self._guard:
            if medians:
                decision.ranking, decision.source = _first_of(ranking(medians, list(named)), left), "measured"
            else:
                decision.ranking = {n: c for n, c in decision.ranking.items() if n not in broken}
            reasons = [f"{fault.candidate}: {fault.reason}" for fault in outcome.faults]
            decision.config = self._first(tunable, decision.ranking, decision.facts, place.key, reasons)
        return outcome.why_not

    def pending(self) -> list[Decision]:
        """Keys that were used in this process and have no timings."""
        with self._guard:
            return [
                d for (_, fixed), d in self.decisions.items() if not fixed and d.source not in ("measured", "locked")
            ]

    def forget(self) -> None:
        """Decides anew from now on; what is on disk stays."""
        levels.EPOCH[0] += 1
        with self._guard:
            self.known.clear()
            self.decisions.clear()


def _is_of_a_capture(error: Exception) -> bool:
    # the words of CUDA and HIP for it: ... when stream is capturing, ... due to a previous error during capture
    return isinstance(error, RuntimeError) and "captur" in str(error).lower()


def _name_of(tunable: Tunable, numbers: Mapping[str, int]) -> str:
    """The candidate with these numbers; nothing where configs have other fields than when it was measured."""
    try:
        return Candidate.of(tunable.parse(numbers)).name
    except ValueError:
        return ""


def _first_of(names: list[str], sound: Mapping[str, object]) -> dict[str, object]:
    rest = [name for name in sound if name not in names]
    return {name: sound[name] for name in [*names, *rest] if name in sound}


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0][:300]


def warn(message: str) -> None:
    """Says something that a user should know, once for each text."""
    warnings.warn(f"autotune: {message}", AutotuneWarning, stacklevel=3)


# -- the selector of the process ---------------------------------------------------------------------
_selector: Selector | None = None
_making = threading.Lock()


def current() -> Selector:
    """The selector of the process; made at the first use, with the store in the cache folder.

    Raises: KernelArgumentError, LockfileError for wrong values of BURN_KERNELS_AUTOTUNE, BURN_KERNELS_LOCK and
    BURN_KERNELS_LOCK_MODE.
    """
    global _selector
    if _selector is None:
        with _making:
            if _selector is None:
                selector = Selector(Store(_store_path()))
                levels.level()
                named, _ = setting("lock")
                if named:
                    selector.lockfile = Lockfile(Path(named), setting("lock_mode")[0] or "append")
                _selector = selector
    return _selector


def _store_path() -> Path | None:
    try:
        return cache_folder() / FILE
    except RuntimeError as error:  # no home folder
        warn(f"no folder for the store ({error}); timings stay in memory; BURN_KERNELS_CACHE names one")
        return None


@contextlib.contextmanager
def selecting(selector: Selector) -> Iterator[Selector]:
    """Makes another selector the process's for a block."""
    global _selector
    before, _selector = _selector, selector
    levels.EPOCH[0] += 1
    try:
        yield selector
    finally:
        _selector = before
        levels.EPOCH[0] += 1


@checked
class lock:  # noqa: N801  # reads as the function that it is to callers, and may open a block
    """Pins every choice to a lockfile from now on, or, as a context manager, for a block.

    Raises: LockfileError if the file cannot be read, or is absent in mode frozen.
    """

    def __init__(self, path: str | os.PathLike[str], *, mode: str = "append") -> None:
        selector = current()
        self._before = selector.lockfile
        selector.lockfile = Lockfile(Path(path), mode)
        selector.forget()

    def __enter__(self) -> Lockfile:
        held = current().lockfile
        assert held is not None
        return held

    def __exit__(self, *_: object) -> None:
        selector = current()
        selector.lockfile = self._before
        selector.forget()


def still() -> contextlib.AbstractContextManager[None]:
    """A block in which no thread measures: what records a CUDA graph opens one, as waiting for the device would end it.

    A measurement that is under way is waited for.
    """
    return current().still()


def unlock() -> None:
    """Ends what `lock` began: choices follow timings again."""
    selector = current()
    selector.lockfile = None
    selector.forget()


def _forget_all() -> None:
    if _selector is not None:
        _selector.forget()


levels.watch(_forget_all)
