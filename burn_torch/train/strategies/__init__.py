"""How steps are executed: on one device, on several, by several processes."""

from burn_torch.train.strategies.base import (
    ExecutionStrategy,
    StepFunctions,
    Stepper,
    SteppingStrategy,
)
from burn_torch.train.strategies.ddp import Ddp
from burn_torch.train.strategies.multi import MultiDevice, MultiDeviceOptim
from burn_torch.train.strategies.peers import Peers
from burn_torch.train.strategies.single import SingleDevice

__all__ = [
    "Ddp",
    "ExecutionStrategy",
    "MultiDevice",
    "MultiDeviceOptim",
    "Peers",
    "SingleDevice",
    "StepFunctions",
    "Stepper",
    "SteppingStrategy",
]
