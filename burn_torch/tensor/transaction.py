"""Transaction: many tensors read at once."""

from __future__ import annotations

import asyncio
from typing import final

from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.tensor.tensor import Tensor

__all__ = ["Transaction"]


@final
class Transaction:
    """Reads many tensors with one wait for each device instead of one for each tensor.

    losses, accuracies = Transaction().register(loss).register(accuracy).execute()
    """

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []

    @checked
    def register(self, tensor: Tensor) -> Transaction:
        """Adds a tensor to read; returns the transaction itself."""
        self._tensors.append(tensor)
        return self

    def execute(self) -> list[TensorData]:
        """The data of all tensors, in the order of their registration."""
        copies = [x.into_torch().to("cpu", non_blocking=True) if x.place != "cpu" else None for x in self._tensors]
        for device in {x.device for x in self._tensors if x.place != "cpu"}:
            device.sync()
        return [
            (x if copy is None else Tensor.from_torch(copy)).into_data()
            for x, copy in zip(self._tensors, copies, strict=True)
        ]

    try_execute = execute

    async def execute_async(self) -> list[TensorData]:
        """`execute` on another thread, so that an event loop goes on."""
        return await asyncio.to_thread(self.execute)
