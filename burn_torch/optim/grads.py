"""Sums of gradients over several batches."""

from __future__ import annotations

from typing import final

from burn_torch.core.checking import checked
from burn_torch.module import Module
from burn_torch.module.gradients import GradientsParams, params_by_id

__all__ = ["GradientsAccumulator"]


@checked
@final
class GradientsAccumulator:
    """Sums gradients over several batches; the caller scales them, by the share of items of each batch for instance."""

    def __init__(self) -> None:
        self._sum = GradientsParams()

    def accumulate(self, module: Module, gradients: GradientsParams) -> None:
        """Adds the gradients of one batch."""
        for ident in params_by_id(module):
            gradient = gradients.get(ident)
            if gradient is not None:
                before = self._sum.get(ident)
                self._sum.register(ident, gradient if before is None else before + gradient)

    def grads(self) -> GradientsParams:
        """The sums so far; starts again from nothing."""
        result, self._sum = self._sum, GradientsParams()
        return result
