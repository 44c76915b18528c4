"""How steps are executed: on one device, on several, by several processes."""

from burn_torch.core.exports import list_exports as _list_exports
from burn_torch.train.strategies.base import ExecutionStrategy as ExecutionStrategy
from burn_torch.train.strategies.base import StepFunctions as StepFunctions
from burn_torch.train.strategies.base import Stepper as Stepper
from burn_torch.train.strategies.base import SteppingStrategy as SteppingStrategy
from burn_torch.train.strategies.ddp import *
from burn_torch.train.strategies.multi import MultiDevice as MultiDevice
from burn_torch.train.strategies.multi import MultiDeviceOptim as MultiDeviceOptim
from burn_torch.train.strategies.peers import Peers as Peers
from burn_torch.train.strategies.single import SingleDevice as SingleDevice

_list_exports(globals())
