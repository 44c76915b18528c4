"""Plain torch modules and optimizers in a Learner: torch's autograd, our loop.

    class Net(torch.nn.Module):
        def forward(self, x): ...

        def train_step(self, batch):                    # an item with a loss; backward and update are the loop's
            scores = self(batch.images)
            loss = torch.nn.functional.cross_entropy(scores, batch.targets)
            return ClassificationOutput(loss, scores, batch.targets)

        valid_step = train_step

    net = Net()
    Learner(net, torch.optim.AdamW(net.parameters(), lr=1e-3), 1e-3)

Metrics, events, checkpoints and resumes are those of any run.  A module is changed in place, so `launch` trains a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, final

import torch

from burn_torch.core.checking import checked
from burn_torch.core.data import TensorData
from burn_torch.core.errors import ConfigError, RecordError
from burn_torch.core.philox import stream_of
from burn_torch.module import ModuleRecord, ParamId
from burn_torch.module.record import RecordEntry
from burn_torch.optim import GradientsParams, OptimizerRecord
from burn_torch.record import FileRecorder
from burn_torch.tensor import Device, Tensor
from burn_torch.train.step import AnyModel

__all__ = ["TorchModel", "TorchOptimizer"]


class _Named(NamedTuple):
    """A parameter as records name it."""

    id: ParamId
    device: Device
    require_grad: bool


@checked(error=ConfigError)
@final
class TorchModel:
    """A torch module as the loop sees it.

    step    `step(module, batch)` gives the item of a batch, in training and in validation; by default the module's
            methods `train_step(batch)` and `valid_step(batch)` do
    """

    def __init__(self, module: torch.nn.Module, step: Callable[[Any, Any], Any] | None = None) -> None:
        self.module: Final = module
        self.step: Final = step
        self.train_step: Callable[[Any], Any]
        self.valid_step: Callable[[Any], Any]
        for name in ("train_step", "valid_step"):
            own = getattr(module, name, None) if step is None else partial(step, module)
            if own is not None:
                setattr(self, name, own)

    def __deepcopy__(self, memo: dict[int, object]) -> TorchModel:
        return TorchModel(copy.deepcopy(self.module, memo), self.step)

    def device(self) -> torch.device:
        """Returns where its parameters lie.  Raises: ConfigError for several devices, or none."""
        devices = {param.device for param in self.module.parameters()}
        if len(devices) != 1:
            raise ConfigError(
                "this torch module cannot be trained where it is",
                given=", ".join(sorted(map(str, devices))) or "a module without parameters",
                expected="parameters on one device",
                mend="module.to(device)",
            )
        return next(iter(devices))

    @contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        """A block in which it trains, or not."""
        before = self.module.training
        self.module.train(training)
        try:
            yield
        finally:
            self.module.train(before)

    # -- what the loop asks of a model ------------------------------------------------------------------
    def named_params(self) -> Iterator[tuple[str, Any]]:
        """Paths and parameters: their ids are made of the paths."""
        for path, param in self.module.named_parameters():
            yield path, _Named(_id_of(path), Device.parse(str(param.device), fused=False), param.requires_grad)

    def valid(self) -> Self:
        """Itself: its steps say in which mode it is."""
        return self

    def into_record(self) -> ModuleRecord:
        """A copy of its parameters and buffers, as a record."""
        names = {name for name, _ in self.module.named_parameters(remove_duplicate=False)}
        entries = {}
        for path, value in self.module.state_dict().items():
            if not isinstance(value, torch.Tensor):
                raise _no_tensor(path, value)
            tensor = Tensor.from_torch(value.detach().clone())
            ident = _id_of(path) if path in names else None
            entries[path] = RecordEntry(tensor.dtype, tensor.shape, ident, tensor.into_data, state=path not in names)
        return ModuleRecord(entries, {"module": type(self.module).__name__})

    def load_record(self, record: ModuleRecord) -> Self:
        """The same module, in which the values of a record now are.

        Raises: RecordError that lists every missing, unused and mismatched key; nothing is loaded then.
        """
        own = self.module.state_dict()
        faults = [f"{path} is missing" for path in own if path not in record.entries]
        faults += [f"{path} is unused" for path in record.entries if path not in own]
        for path in own.keys() & record.entries.keys():
            entry = record.entries[path]
            if tuple(own[path].shape) != tuple(entry.shape):
                faults.append(f"{path} is {tuple(entry.shape)}, the module has {tuple(own[path].shape)}")
        if faults:
            raise RecordError(
                f"this record does not fit {type(self.module).__name__}",
                given="\n            ".join(faults[:20]),
                expected="the parameters and buffers of the module",
                mend="make the module as it was when the record was written",
            )
        values = {path: _into_torch(record.entries[path].read()) for path in own}
        self.module.load_state_dict(values)
        return self

    def save_file(self, path: str | Path, recorder: FileRecorder | None = None) -> Path:
        """Writes the record to a file, whole or not at all."""
        record = self.into_record()
        return record.save(path) if recorder is None else recorder.record(record, path)

    def num_params(self) -> int:
        """Number of elements in all parameters."""
        return sum(param.numel() for param in self.module.parameters())

    def __repr__(self) -> str:
        return repr(self.module)


@final
class TorchOptimizer:
    """A torch optimizer as the loop sees it: `step` changes it and its parameters in place.

    Its groups keep the ratios of their learning rates: the schedule's rate is that of the first group.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, paths: list[str]) -> None:
        self.optimizer: Final = optimizer
        self.paths: Final = paths
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        self.ratios: Final = [rate / rates[0] if rates[0] else 1.0 for rate in rates]

    @staticmethod
    def of(optimizer: torch.optim.Optimizer, model: AnyModel) -> TorchOptimizer:
        """An optimizer of a model's parameters.  Raises: ConfigError where it has others."""
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ConfigError(
                "Learner: this torch optimizer calls the loss several times in a step",
                given="torch.optim.LBFGS, whose step() needs a closure",
                expected="an optimizer whose step() follows one backward, such as AdamW or SGD",
                mend="take another optimizer, or write the loop around LBFGS yourself",
            )
        params = [param for group in optimizer.param_groups for param in group["params"]]
        names = {id(p): path for path, p in model.module.named_parameters()} if isinstance(model, TorchModel) else {}
        foreign = [i for i, param in enumerate(params) if id(param) not in names]
        if foreign:
            raise ConfigError(
                "Learner: this torch optimizer is not of this model",
                given=f"{len(foreign)} of its {len(params)} parameters are none of {type(model).__name__}'s",
                expected="a torch.nn.Module and an optimizer of its parameters()",
                mend="net = Net(); Learner(net, torch.optim.AdamW(net.parameters()), 1e-3)",
            )
        return TorchOptimizer(optimizer, [names[id(param)] for param in params])

    def __deepcopy__(self, memo: dict[int, object]) -> TorchOptimizer:
        copied = TorchOptimizer(copy.deepcopy(self.optimizer, memo), self.paths)
        copied.ratios[:] = self.ratios
        return copied

    def set_lr(self, lr: float) -> None:
        """Gives the groups their learning rates."""
        for group, ratio in zip(self.optimizer.param_groups, self.ratios, strict=True):
            group["lr"] = lr * ratio

    def step(self, lr: float, model: TorchModel, gradients: GradientsParams) -> tuple[TorchModel, TorchOptimizer]:
        """The same two after an update by gradients given by the ids of parameters."""
        for path, param in model.module.named_parameters():
            gradient = gradients.get(_id_of(path))
            param.grad = None if gradient is None else gradient.into_torch().clone()
        self.set_lr(lr)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return model, self

    # -- records ----------------------------------------------------------------------------------------
    def to_record(self) -> OptimizerRecord:
        """A copy of its states, by parameter.  Raises: ConfigError for states that are no tensors and numbers."""
        states: dict[ParamId, tuple[int, dict[str, Tensor]]] = {}
        for number, state in self.optimizer.state_dict()["state"].items():
            named: dict[str, Tensor] = {}
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    named[name] = Tensor.from_torch(value.detach().clone())
                elif isinstance(value, int | float):
                    named[f"{name}-number"] = Tensor.from_torch(torch.tensor(value, dtype=torch.float64))
                elif value is not None:
                    raise _no_tensor(f"{self._kind()}: {name}", value)
            states[_id_of(self.paths[number])] = (1, named)
        return OptimizerRecord(self._kind(), states)

    def load_record(self, record: OptimizerRecord, device: Device | None = None) -> Self:
        """The same optimizer, in which the states of a record now are.

        Raises: RecordError for the record of another kind of optimizer, or of one of other parameters.
        """
        if record.kind != self._kind():
            raise RecordError(
                "this optimizer record belongs to another optimizer",
                given=f"a record of {record.kind}",
                expected=f"a record of {self._kind()}",
                mend="resume with the optimizer that the run was started with",
            )
        places = {_id_of(path): number for number, path in enumerate(self.paths)}
        foreign = sum(ident not in places for ident in record.states)
        if foreign:
            raise RecordError(
                "this optimizer record is of other parameters",
                given=f"states of {len(record.states)} parameters, {foreign} of which {self._kind()} lacks",
                expected=f"states of parameters among {', '.join(self.paths[:4])}"
                f"{', ...' if len(self.paths) > 4 else ''}",
                mend="resume with an optimizer of the same parameters as the run was started with",
            )
        state: dict[int, dict[str, Any]] = {}
        for ident, (_, slots) in record.states.items():
            state[places[ident]] = {
                name.removesuffix("-number"): float(tensor.into_data().array)
                if name.endswith("-number")
                else _into_torch(tensor.into_data())
                for name, tensor in slots.items()
            }
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        return self

    def _kind(self) -> str:
        return f"torch.{type(self.optimizer).__name__}"


def _id_of(path: str) -> ParamId:
    return ParamId(stream_of(f"torch:{path}"))


def _into_torch(data: TensorData) -> torch.Tensor:
    return Tensor.from_data(data, Device.cpu()).into_torch().clone()


def _no_tensor(name: str, value: object) -> ConfigError:
    return ConfigError(
        "this cannot be saved in a checkpoint",
        given=f"{name}, {type(value).__name__}",
        expected="tensors and numbers as the state of a torch module or optimizer",
        mend="keep it as a buffer, register_buffer(name, tensor), or take another optimizer",
    )
