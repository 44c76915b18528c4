"""torch's settings that a recorded program keeps from the time it was recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch

__all__ = ["precision_settings"]


def precision_settings() -> tuple[object, ...]:
    """torch's settings that a recorded program keeps from the time it was recorded: part of what names a program."""
    return tuple([ask() for ask in _asked_of_torch()])


@cache
def _asked_of_torch() -> tuple[Callable[[], object], ...]:
    """Returns the readers of the settings: torch's C functions if it has them, which answer in a tenth of the time."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    ways: dict[str, Callable[[], object]] = {
        "_get_float32_matmul_precision": torch.get_float32_matmul_precision,
        "_get_cublas_allow_fp16_reduced_precision_reduction": lambda: matmul.allow_fp16_reduced_precision_reduction,
        "_get_cublas_allow_bf16_reduced_precision_reduction": lambda: matmul.allow_bf16_reduced_precision_reduction,
        "_get_cudnn_enabled": lambda: cudnn.enabled,
        "_get_cudnn_deterministic": lambda: cudnn.deterministic,
        "_get_deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    }
    of_type = getattr(torch._C, "_get_fp32_precision_getter", None)
    asked = [getattr(torch._C, name, way) for name, way in ways.items()]
    return (partial(of_type, "cuda", "conv") if of_type else _precision_of_convolutions, *asked)


def _precision_of_convolutions() -> object:
    return getattr(getattr(torch.backends.cudnn, "conv", None), "fp32_precision", None)
