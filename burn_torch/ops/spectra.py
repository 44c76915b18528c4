"""Complex arrays of torch as two tensors, and the normalisations of Fourier transforms; imported with every tensor."""

from __future__ import annotations

from typing import Final

import torch

__all__ = ["NORMS", "join_parts", "split_parts"]

NORMS: Final = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
"""Each normalisation, and that of the adjoint, which runs in the other direction with the same factor."""


def join_parts(real: torch.Tensor, imag: torch.Tensor | None) -> torch.Tensor:
    """One complex tensor; without a copy if the two are views of one, as the results of a transform are."""
    if imag is None:
        return real
    strides = real.stride()
    if (
        strides == imag.stride()
        and imag.storage_offset() == real.storage_offset() + 1
        and imag.untyped_storage().data_ptr() == real.untyped_storage().data_ptr()
        and not any(stride % 2 for stride in (*strides, real.storage_offset()))
    ):
        return torch.view_as_complex(real.as_strided((*real.shape, 2), (*strides, 1)))
    return torch.complex(real, imag)


def split_parts(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The two parts of a complex tensor, without a copy."""
    return y.real.data, y.imag.data  # each has a version of its own: writing to one does not change the other
