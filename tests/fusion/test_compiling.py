"""Kernels that workers compile ahead: the same entries of the cache, no process left, nothing that depends on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from burn_kernels.launch import H200, Launch  # after the check for triton
from burn_torch.backend.libtorch.generated import compile_worker, compiling
from burn_torch.backend.libtorch.generated.triton_kernels import FusedKernel
from burn_torch.core.errors import ConfigError
from burn_torch.fusion.triton.configs import tiles_of
from tests.fusion.programs import row, tensor, traced

pytestmark = pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing")


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches and what was asked for, as in a new process."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("BURN_TORCH_CACHE", str(tmp_path / "burn_torch"))
    monkeypatch.setattr(compiling, "_asked", set())
    monkeypatch.setattr(compiling, "_useless", threading.Event())


def kernels() -> list[FusedKernel]:
    """Four, of which one takes a function from `burn_kernels.prims`."""
    bodies = [
        lambda x: row("gelu")(x) * 2.0,
        lambda x: row("sum")(x, dims=(1,)) + 1.0,
        lambda x: row("sum")(x * x, dims=(0,)),
        lambda x: (row("relu")(x), row("sum")(x, dims=(0, 1))),
    ]
    return [FusedKernel(traced(body, [tensor(33, 40)]), strict=False) for body in bodies]


def told_of(kernel: FusedKernel) -> tuple[Any, Any, str]:
    """Returns the arguments of Triton's hooks for the launch of a kernel on an H200, as `JITFunction.run` makes it."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import serialize_specialization_data

    lowered = kernel.lowered((None,))
    tiles, function = tiles_of(lowered), kernel.variant((None,)).function
    launch = Launch(function, (1,), (), tiles.blocks(lowered), tiles.warps, 1)
    pointers = [name for name in function.arg_names if name not in launch.constants]
    signature = dict.fromkeys(pointers, "*fp32") | dict.fromkeys(launch.constants, "constexpr")
    constants = {(function.arg_names.index(name),): value for name, value in launch.constants.items()}
    attributes = {(i,): [["tt.divisibility", 16]] for i in range(len(pointers))}
    target = GPUTarget(H200.backend, H200.arch, H200.lanes)
    options = make_backend(target).parse_options({"num_warps": launch.warps, "num_stages": 1})
    ordered = {name: signature[name] for name in function.arg_names}
    specialization = serialize_specialization_data(function.__name__, ordered, constants, attributes, options, "key")
    return function, target, specialization


def jobs_of(fused_kernels: list[FusedKernel]) -> list[dict[str, Any]]:
    import burn_kernels

    folder = str(Path(burn_kernels.__file__).parent)
    jobs = [compiling.job_of(*told_of(kernel)) for kernel in fused_kernels]
    return [job | {"kernels": folder} for job in jobs if job is not None]


def test_a_worker_begins_without_torch_and_without_the_package() -> None:
    """Either takes seconds, which is what a worker is there to save."""
    code = f"""import runpy, sys
runpy.run_path({str(compile_worker.__file__)!r}, run_name="worker")
print(*sorted({{"burn_torch", "burn_kernels", "torch"}} & {{*sys.modules}}))"""
    ran = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == []


def compiled_here(kernel: FusedKernel) -> bool:
    """Compiles it in this process; whether the cache had it."""
    import triton
    from triton import knobs
    from triton.compiler import make_backend

    hits: list[bool] = []
    function, target, specialization = told_of(kernel)
    source, options = compile_worker.source_of(function, json.loads(specialization), make_backend(target))
    before = knobs.compilation.listener
    knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
    try:
        triton.compile(source, target=target, options=options.__dict__)
    finally:
        knobs.compilation.listener = before
    return hits == [True]


def test_workers_fill_the_cache_under_the_keys_of_this_process() -> None:
    fused_kernels = kernels()
    jobs = jobs_of(fused_kernels)
    assert len(jobs) == 4
    assert compiling.compiled_at_once(jobs, 2) == 4
    assert jobs_of(fused_kernels) == [], "nothing is missing any more"
    assert all(map(compiled_here, fused_kernels))


def test_a_worker_that_would_compile_something_else_says_so_and_stores_nothing(tmp_path: Path) -> None:
    (job, *_) = jobs_of(kernels()[:1])
    assert compiling.compiled_at_once([job | {"hash": "another"}], 1) == 0
    assert compiling.compiled_at_once([job | {"path": str(tmp_path / "gone.py")}], 1) == 0
    assert not compiled_here(kernels()[0])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that workers start."""
    processes: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def noted(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        processes.append(start(*args, **kwargs))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    return processes


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "import time\ntime.sleep(600)", "print('{')"])
def test_workers_that_die_hang_or_lie_leave_no_process_and_no_error(
    program: str, started: list[subprocess.Popen[bytes]]
) -> None:
    begun = time.monotonic()
    jobs: list[dict[str, object]] = [{"hash": str(n)} for n in range(9)]
    assert compiling.compiled_at_once(jobs, 3, 1.0, (sys.executable, "-c", program)) == 0
    assert time.monotonic() - begun < 20.0
    assert len(started) >= 3
    assert all(worker.returncode is not None for worker in started), "waited for: no zombie"


def test_workers_answer_a_process_with_more_than_1024_open_files() -> None:
    program = "import json, sys\nfor line in sys.stdin: print(json.dumps({'why_not': ''}), flush=True)"
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("no more files may be opened")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert compiling.compiled_at_once([{"hash": "1"}], 1, 20.0, (sys.executable, "-c", program)) == 1
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_interrupted_wait_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    def interrupted(futures: Any, timeout: float) -> Any:
        while len(started) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(compiling, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiling.compiled_at_once(
            [{"hash": "1"}, {"hash": "2"}], 2, command=(sys.executable, "-c", "import time\ntime.sleep(600)")
        )
    assert all(worker.returncode is not None for worker in started)


def test_a_program_without_a_main_guard_starts_workers_once(tmp_path: Path) -> None:
    """Nothing of the program runs again in a worker, as it would where multiprocessing imports it."""
    script = tmp_path / "program.py"
    folder = Path(__file__).parents[2]
    script.write_text(
        f"import sys\nsys.path[:0] = [{str(folder)!r}, {str(folder / 'kernels')!r}]\n"
        "print('begun')\n"
        "from tests.fusion.test_compiling import compiling, jobs_of, kernels\n"
        "print(compiling.compiled_at_once(jobs_of(kernels()[:2]), 2))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["begun", "2"]


def test_one_pool_starts_all_processes_that_compile() -> None:
    import burn_kernels
    import burn_torch

    homes = (Path(burn_torch.__file__).parent / "backend", Path(burn_kernels.__file__).parent)
    files = [path for home in homes for path in home.rglob("*.py") if "Popen(" in path.read_text(encoding="utf-8")]
    assert [path.name for path in files] == ["workers.py"]


def test_workers_that_compile_nothing_are_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def nothing(jobs: Any, count: int) -> int:
        asked.append(len(jobs))
        return 0

    monkeypatch.setattr(compiling, "compiled_at_once", nothing)
    monkeypatch.setattr(compiling, "_missing", lambda kernel: iter([{"hash": str(id(kernel))}]))
    monkeypatch.setenv(compiling.VARIABLE, "4")
    for _ in range(2):
        on_gpu = [FusedKernel(traced(lambda x: x * 2.0, [tensor(n, place="cuda:0")]), strict=False) for n in range(4)]
        assert compiling.compile_ahead(on_gpu) == 0
    assert asked == [4]


def test_nothing_is_started_for_the_host_few_kernels_or_where_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("workers are asked")

    monkeypatch.setattr(compiling, "compiled_at_once", refuse)
    assert compiling.compile_ahead(kernels()) == 0, "on the host nothing is compiled for a device"
    on_gpu = [FusedKernel(traced(lambda x: x * 2.0, [tensor(n, place="cuda:0")]), strict=False) for n in range(2, 6)]
    monkeypatch.setenv(compiling.VARIABLE, "0")
    assert compiling.compile_ahead(on_gpu) == 0
    monkeypatch.setenv(compiling.VARIABLE, "4")
    assert compiling.compile_ahead(on_gpu[:2]) == 0
    assert compiling.workers() == 4
    monkeypatch.setenv(compiling.VARIABLE, "many")
    with pytest.raises(ConfigError, match=r"(?s)BURN_TORCH_COMPILE_WORKERS=many.*0 for none.*unset"):
        compiling.compile_ahead(on_gpu)
    monkeypatch.delenv(compiling.VARIABLE)
    assert compiling.workers() in range(9)


@pytest.mark.gpu
def test_a_program_finds_its_kernels_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    from burn_torch import Device, Distribution, Tensor
    from burn_torch.tensor import activation

    monkeypatch.setenv(compiling.VARIABLE, "4")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "_useless", threading.Event())  # what another test found does not count here
    counts: list[int] = []
    ahead = compiling.compile_ahead

    def counted(given: Any) -> int:
        counts.append(ahead(given))
        return counts[-1]

    monkeypatch.setattr("burn_torch.backend.libtorch.attached.programs.compile_ahead", counted)
    hits: list[bool] = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda *, cache_hit, **_: hits.append(cache_hit))
    device = Device.cuda(0).fused()
    x = Tensor.random((64, 64), Distribution.Uniform(-0.1, 0.1), device)
    device.sync()
    hits.clear()
    y = x  # products between them keep the four kernels apart
    for name in ("tanh", "exp", "sin", "sigmoid"):
        y = ((activation.sigmoid(y) if name == "sigmoid" else getattr(y, name)()) * 2.0 + 0.25).matmul(x)
    output = y.into_data().array
    assert sum(counts) >= 3, compiling._useless.is_set()  # the fourth can be part of a product
    assert hits.count(True) >= 3
    host = x.into_torch().double().cpu()
    other = host
    for name in ("tanh", "exp", "sin", "sigmoid"):
        other = (getattr(other, name)() * 2.0 + 0.25) @ host
    torch.testing.assert_close(torch.from_numpy(output).double(), other, rtol=2e-2, atol=2e-3)
