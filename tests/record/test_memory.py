"""How much memory saving and loading take beyond the model itself, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIB = 1 << 20

COMMON = """
    import sys
    import numpy as np
    from burn_torch import Device, Module, Param, ParamId, Tensor
    from burn_torch.core.data import TensorData
    from burn_torch.core.dtype import DType
    from burn_torch.module import ModuleRecord
    from burn_torch.module.record import RecordEntry

    PATH, TENSORS, SHAPE = sys.argv[1], int(sys.argv[2]), (2048, 4096)  # tensors of 32 MiB

    def peak():
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1024

    def made(value):
        return lambda: TensorData(np.full(SHAPE, value, np.float32), DType.F32)

    class Net(Module):
        weights: list

    def uninitialized():
        zeros = lambda device, grad: Tensor.zeros(SHAPE, device)
        return Param.uninitialized(ParamId.new(), zeros, Device.cpu(), True, SHAPE)

    net = Net([uninitialized() for _ in range(TENSORS)])
    warm = ModuleRecord({"a": RecordEntry(DType.F32, (1,), None, lambda: TensorData.of([1.0]))})
    ModuleRecord.load(warm.save(PATH.replace("m.", "warm.")))
    Net([Param.from_data([0.0], Device.cpu())]).load_record(
        ModuleRecord({"weights.0": warm.entries["a"]}))
"""
SAVE = """
    entries = {f"weights.{i}": RecordEntry(DType.F32, SHAPE, None, made(float(i))) for i in range(TENSORS)}
    before = peak()
    ModuleRecord(entries).save(PATH)
    print(peak() - before)
"""
LOAD = """
    before = peak()
    net = net.load_record(ModuleRecord.load(PATH))
    print(peak() - before)
    assert [param.val().into_data().array[7, 7] for param in net.weights] == list(range(TENSORS))
"""


def run(program: str, path: Path, mib: int) -> int:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(COMMON + program), str(path), str(mib // 32)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to read the peak from")
@pytest.mark.parametrize(
    ("ending", "mib"), [(".safetensors", 512), (".bpk", 512), (".mpk", 512), (".safetensors", 4096), (".bpk", 4096)]
)
def test_models_are_saved_and_loaded_with_64_mib_beyond_them(tmp_path: Path, ending: str, mib: int) -> None:
    path = tmp_path / f"m{ending}"
    try:
        saving = run(SAVE, path, mib)  # its tensors are made one at a time: the model itself takes nothing
        assert path.stat().st_size > mib * MIB
        loading = run(LOAD, path, mib)
    finally:
        path.unlink(missing_ok=True)  # pytest keeps the folders of three runs
    print(f"{ending}: {mib} MiB, saving {saving} MiB, loading {loading - mib} MiB beyond the model")
    assert saving <= 64
    assert loading - mib <= 64
