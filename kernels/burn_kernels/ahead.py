"""Compiles recorded launches ahead of time, for machines that are not there, and reads what the compiler reports.

    with recording(H200) as launches:
        softmax.forward(torch.empty(8192, 4096, dtype=torch.bfloat16, device="meta"))
    resources(compile_launch(launches[0], H200))            # Resources(registers=40, spills=0, shared_bytes=64)

Triton cannot do this in a process that runs its interpreter (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from burn_kernels.errors import KernelLimitError
from burn_kernels.launch import Launch, Machine, extra_options

__all__ = ["Resources", "compile_launch", "resources"]

_TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.uint8: "u8",
    torch.bool: "i1",
}


@dataclass(frozen=True)
class Resources:
    """The resources that one program of a compiled kernel takes."""

    registers: int
    """The registers of a thread."""
    spills: int
    """Registers or bytes that went to memory for want of registers."""
    shared_bytes: int


def compile_launch(launch: Launch, machine: Machine) -> object:
    """Compiles what `launch` would run on `machine`; returns Triton's compiled kernel, its text forms in `.asm`."""
    from triton import compile as triton_compile
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature: dict[str, object] = {}
    constants: dict[tuple[int, ...], object] = {}
    attributes: dict[tuple[int, ...], list[list[object]]] = {}

    def type_of(value: Any, path: tuple[int, ...], typed: str, specialized: bool) -> object:
        """The type of an argument as Triton writes it; notes constants, and what 16 divides, by their paths."""
        if isinstance(value, tuple):
            types = [type_of(member, (*path, at), "", specialized) for at, member in enumerate(value)]
            return getattr(value, "_make", tuple)(types)
        if value is None or (isinstance(value, int) and value == 1 and specialized):
            constants[path] = value  # Triton writes such an argument into the code
            return "constexpr"
        is_tensor = isinstance(value, torch.Tensor)
        if not is_tensor and not isinstance(value, int):
            return "fp32"
        if specialized and (value.storage_offset() * value.element_size() if is_tensor else value) % 16 == 0:
            attributes[path] = [["tt.divisibility", 16]]
        if is_tensor:
            return "*" + _TYPES[value.dtype]
        return typed or ("i32" if -(2**31) <= value < 2**31 else "i64")

    names = launch.kernel.arg_names
    values = dict(zip(names, launch.arguments, strict=False)) | launch.constants
    for index, (name, parameter) in enumerate(zip(names, launch.kernel.params, strict=True)):
        if name in launch.constants:
            signature[name], constants[(index,)] = "constexpr", values[name]
        else:
            specialized = not parameter.do_not_specialize
            signature[name] = type_of(values[name], (index,), parameter.annotation_type, specialized)
    target = GPUTarget(machine.backend, machine.arch, machine.lanes)
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    # that programs run together is of the launch alone
    options |= extra_options(machine, False, launch.registers, contracts=launch.contracts)
    return triton_compile(ASTSource(launch.kernel, signature, constants, attributes), target=target, options=options)


def resources(compiled: Any) -> Resources:
    """Reads the report of a kernel: `cuobjdump` of the Triton wheel for CUDA, the assembly's text for ROCm."""
    shared = int(compiled.metadata.shared)
    if "amdgcn" in compiled.asm:
        text = compiled.asm["amdgcn"]
        spills = _number(r"\.vgpr_spill_count:\s*(\d+)", text) + _number(r"\.sgpr_spill_count:\s*(\d+)", text)
        return Resources(_number(r"\.vgpr_count:\s*(\d+)", text), spills, shared)
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(compiled.asm["cubin"])
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(file)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # STACK holds spilled registers and arrays with run-time indices, which Triton does not make
    return Resources(_number(r"REG:(\d+)", text), _number(r"STACK:(\d+)", text) + _number(r"LOCAL:(\d+)", text), shared)


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    if match is None:
        raise KernelLimitError(
            "the compiler's report does not say what was asked",
            given=text[-500:],
            expected=f"a line that matches {pattern}",
            mend="use Triton 3.6, or teach burn_kernels.ahead the new form",
        )
    return int(match[1])
