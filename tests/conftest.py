"""Fixtures and marks that every test may use."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

if TYPE_CHECKING:
    from burn_torch import Device

os.environ.setdefault("BURN_TORCH_VERIFY", "proofs")  # each generated kernel and each pass of the tests is checked

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


if importlib.util.find_spec("hypothesis"):
    from hypothesis import HealthCheck, settings

    # the quick tests draw the same examples in every run; the slow ones look further each time.  None is timed: where
    # other processes have the cores, one example takes seconds
    quick = os.environ.get("BURN_TORCH_SLOW") != "1"
    settings.register_profile("tests", derandomize=quick, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("tests")


@pytest.fixture(autouse=True)
def numbers_of_torch(request: pytest.FixtureRequest) -> None:
    """Makes torch draw the same numbers in every run of a test.

    `torch.manual_seed` would keep a traceback for each kind of device that is not in use: 0.6 ms, and memory.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        seed = zlib.crc32(request.node.nodeid.encode())
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of its own for each test: the same numbers in every run, whatever else runs."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


GIB = 1 << 30


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Empties torch's cache after a test on a GPU, as several worker processes share the memory."""
    try:
        return (yield)
    finally:
        torch = sys.modules.get("torch") if item.get_closest_marker("gpu") else None
        if torch is not None and torch.cuda.is_initialized() and torch.cuda.memory_reserved() > GIB:
            gc.collect()
            torch.cuda.empty_cache()


@pytest.fixture
def alone_on_the_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For tests that take tens of GiB of the GPU: one of them at a time, and none where 40 GiB are not free."""
    torch = pytest.importorskip("torch")
    fcntl = pytest.importorskip("fcntl")
    name = f"burn_torch-tests-gpu-{os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}.lock"
    with (Path(tempfile.gettempdir()) / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        free = torch.cuda.mem_get_info()[0]
        if free < 40 * GIB:
            pytest.skip(f"only {free // GIB} GiB of the GPU are free, and this test takes up to 40")
        yield
        torch.cuda.empty_cache()


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Each place that this machine has, with the plain stack; tests add `.autodiff()` or `.fused()`."""
    from burn_torch import Device

    return Device.cpu() if request.param == "cpu" else Device.cuda(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the repository, or in BURN_TORCH_SHARED; its tests are skipped without it."""
    named = os.environ.get("BURN_TORCH_SHARED")
    shared = Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
    if not (shared / "data").is_dir():
        pytest.skip("the folder of shared data sets is absent (BURN_TORCH_SHARED names it)")
    return shared / "data"


@pytest.fixture(scope="session")
def generator() -> Callable[[str], Any]:
    """A module of docs/generate by its name."""
    folder = Path(__file__).resolve().parents[1] / "docs" / "generate"

    def load(name: str) -> Any:
        sys.path.insert(0, str(folder))
        try:
            spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(folder))
        return module

    return load


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps imported modules and collected tests out of the garbage collector's reach for the whole session.

    Else each `gc.collect()` of a test takes 0.8 s with the whole suite collected, instead of 0.01 s.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        _let_loggers_propagate()
        gc.freeze()
        gc.enable()


def _let_loggers_propagate() -> None:
    """Lets what torch logs reach the root, where pytest's handlers are.

    pytest hangs its two handlers into each logger that does not propagate, and out again, three times a test: torch has
    forty such loggers, and that took 0.6 ms of each test.
    """
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.hookimpl(trylast=True)  # after -m and -k have deselected: the look for a GPU costs the import of torch
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips, by name, what this run or this machine is not for."""
    skip_gpu = _why_no_gpu(items)
    skip_slow = "" if _slow_wanted(config) else "slow: make test-all runs it, or BURN_TORCH_SLOW=1, or -m slow"
    interpreted = config.rootpath / "tests" / "interpreted"
    for item in items:
        if skip_gpu and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=skip_gpu))
        if skip_slow and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason=skip_slow))
        if not INTERPRETED and item.path.is_relative_to(interpreted):
            item.add_marker(pytest.mark.skip(reason="needs TRITON_INTERPRET=1 in a process of its own: make test"))


def _slow_wanted(config: pytest.Config) -> bool:
    marks = cast(str, config.option.markexpr)
    return os.environ.get("BURN_TORCH_SLOW") == "1" or ("slow" in marks and "not slow" not in marks)


def _why_no_gpu(items: list[pytest.Item]) -> str:
    """Returns why the gpu tests cannot run here, or nothing; imports torch only where there are such tests."""
    if not any(item.get_closest_marker("gpu") for item in items):
        return ""
    import torch

    return "" if torch.cuda.is_available() else "gpu: torch finds no CUDA device"
