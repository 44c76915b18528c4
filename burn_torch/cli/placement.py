"""Says where `train` and `resume` compute: on a device, on several, or as one of the processes that torchrun
started.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from burn_torch.cli.devices import device
from burn_torch.core.errors import ConfigError
from burn_torch.core.wording import counted

if TYPE_CHECKING:
    from burn_torch.distributed import World
    from burn_torch.tensor import Device

__all__ = ["Placement", "add_options"]


def add_options(group: argparse._ActionsContainer) -> None:
    """Declares what several devices and processes have of their own."""
    group.add_argument(
        "--shard-optimizer",
        action="store_true",
        help="spread the optimizer's states over several devices (--devices cuda:0,cuda:1) or processes (torchrun)",
    )


@dataclass(frozen=True)
class Placement:
    """The devices of this process, and the processes that train together."""

    devices: tuple[Device, ...]
    world: World
    sharded: bool
    words: str
    """The devices as the user named them."""

    @staticmethod
    def of(args: argparse.Namespace, *, fuse: bool | None = None) -> Placement:
        """Returns what the command line and the environment say; joins the other processes of torchrun.

        fuse: whether steps are fused; None leaves it to the devices.

        Raises: DeviceError for a device that is not here; ConfigError for what does not go together.
        """
        import burn_torch.distributed as distributed
        from burn_torch.core.exit_code import exit_code

        words = [word for word in args.devices.split(",") if word.strip()] or [args.devices]
        devices = tuple(device(word, fused=fuse) for word in words)
        world = distributed.init(code_of=exit_code)
        if world.size > 1 and len(devices) > 1:
            raise _not_together(f"--devices {args.devices} in {world.size} processes", "one device a process")
        if world.size == 1 and len(devices) == 1 and args.shard_optimizer:
            expected = "several devices (--devices cuda:0,cuda:1), or several processes (torchrun)"
            raise _not_together(f"--shard-optimizer with --devices {args.devices}", expected)
        if world.size > 1 and devices[0].place.startswith("cuda"):
            devices = (device(f"cuda:{world.local_rank}", fused=fuse),)
        return Placement(tuple(one.autodiff() for one in devices), world, args.shard_optimizer, args.devices)

    @property
    def device(self) -> Device:
        """Returns where the model is made."""
        return self.devices[0]

    @property
    def is_main(self) -> bool:
        """Returns whether this process writes files and talks."""
        return self.world.rank == 0

    def applied(self, training: Any) -> Any:
        """A SupervisedTraining that computes here."""
        from burn_torch.train import Ddp, MultiDevice, MultiDeviceOptim

        if self.world.size > 1:
            return training.with_training_strategy(Ddp(self.device, sharded=self.sharded))
        if len(self.devices) > 1:
            optim = MultiDeviceOptim.OptimSharded if self.sharded else MultiDeviceOptim.OptimMainDevice
            return training.with_training_strategy(MultiDevice(self.devices, optim))
        return training

    def fuse(self, wanted: bool | None) -> bool | None:
        """Returns what a SupervisedTraining is told; several devices in one process are not fused where they are made
        so.
        """
        return None if wanted is False and len(self.devices) > 1 else wanted

    def from_main(self, value: str) -> str:
        """Returns what process 0 gives."""
        if self.world.size == 1:
            return value
        import burn_torch.distributed as distributed

        text: str = distributed.gather(value)[0]
        return text

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that all processes come out of together: where one fails in it, all end with its exit code."""
        try:
            yield
        except BaseException as err:
            if self.world.watchdog is not None:
                self.world.watchdog.report(err)
            raise
        if self.world.size > 1:
            import burn_torch.distributed as distributed

            distributed.shutdown()

    def __str__(self) -> str:
        return self.words if self.world.size == 1 else f"{counted(self.world.size, 'process')}, {self.words} each"


def _not_together(given: str, expected: str) -> ConfigError:
    return ConfigError("these do not go together", given=given, expected=expected, mend="leave one of them out")
