"""Errors of CUDA graphs, in words."""

from __future__ import annotations

from burn_torch.core.errors import DeviceError
from burn_torch.core.wording import first_line

__all__ = ["cannot_record", "is_lost", "lost"]


def cannot_record(fault: BaseException) -> DeviceError:
    """Makes the error for a recording that fails although each operation alone can be recorded."""
    return DeviceError(
        "a program could not be recorded as a CUDA graph, and no operation of it could be blamed",
        given=f"{type(fault).__name__}: {first_line(fault)}",
        expected="a program of which every operation that fails to record alone is left out",
        mend="compile the function without CUDA graphs, and report this message",
    )


def is_lost(fault: RuntimeError) -> bool:
    """Asks whether the device has failed, and with it the context of the process."""
    return "CUDA error" in str(fault) and "out of memory" not in str(fault)


def lost(fault: RuntimeError) -> DeviceError:
    """Makes the error for a failure of the device: the context of the process is gone, whatever is called next."""
    return DeviceError(
        "the GPU failed while a compiled program ran",
        given=first_line(fault),
        expected="kernels that stay within their tensors; an index outside its axis ends like this",
        mend="start the process again: this CUDA context computes no more. Run the step without compile and with"
        " CUDA_LAUNCH_BLOCKING=1 to see which operation fails",
    )
