"""One step of a recipe, taken apart: what `--dry-run`, `check`, `explain` and `bench` look at."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from burn_torch import seed
from burn_torch.cli import devices, options
from burn_torch.cli.options import Settings
from burn_torch.cli.recipe import Recipe
from burn_torch.graph import Graph
from burn_torch.module import Module
from burn_torch.tensor import Device, Tensor
from burn_torch.train import Learner, fold, train_step, valid_step
from burn_torch.transform import Compiled, Explanation, compile

__all__ = [
    "Layer",
    "OneStep",
    "described",
    "layers_of",
    "leaves_of",
    "operations",
    "peak_process_bytes",
    "size",
    "step",
]

KEY: Final = 7
"""The random key of the step; any would do, as long as it is the same every time."""


def step(model: Any, optim: Any, batch: Any, lr: float, key: int) -> tuple[Any, Any, Any]:
    """A training step as a function of values: model, optimizer and item after it."""
    model, grads, item = train_step(model, batch, key)
    model, optim = optim.step(lr, model, grads)
    return model, optim, item


@dataclass(frozen=True)
class OneStep:
    """A learner and its first batches, ready to step."""

    recipe: Recipe
    settings: Settings
    device: Device
    train_loader: Any
    valid_loader: Any
    learner: Learner[Any]
    batch: Any
    valid_batch: object
    batch_s: float
    """How long it took to make the first batch."""
    precision: Any

    @staticmethod
    def of(recipe: Recipe, settings: Settings, args: argparse.Namespace) -> OneStep:
        """Reads the data and makes the model, exactly as `train` does."""
        options.set_up_machine(args)
        device = devices.device(args.devices, fused=settings.config.fuse).autodiff()
        settings = options.prepared(recipe, settings)
        config = settings.config
        seed(config.seed)
        train, valid = recipe.loaders(config, device)
        learner = recipe.learner(config, device)
        began = time.perf_counter()
        batch = first(train)
        batch_s = time.perf_counter() - began
        precision = "bfloat16" if args.precision == "bfloat16" else "float32"
        return OneStep(
            recipe, settings, device, train, valid, learner, batch, first(valid), batch_s, precision
        )  # fmt: skip

    @property
    def lr(self) -> float:
        """The learning rate of the first step."""
        return float(self.learner.lr_scheduler.lr_at(0))

    @property
    def items(self) -> int:
        """Items of the batch."""
        return min(int(self.train_loader.batch_size), int(self.train_loader.num_items()))

    def compiled(self) -> Compiled[..., Any]:
        """The step as the Learner compiles it."""
        return compile(step, donate=("model", "optim"), precision=self.precision, fuse=self.settings.config.fuse)

    def run(self, function: Callable[..., Any], learner: Learner[Any], number: int = 0) -> tuple[Learner[Any], Any]:
        """One step by a function like `step`."""
        stepped = function(learner.model, learner.optim, self.batch, self.lr, fold(KEY, number))
        return dataclasses.replace(learner, model=stepped[0], optim=stepped[1]), stepped[2]

    def timed(self, function: Callable[..., object], steps: int) -> list[float]:
        """The seconds that each of some steps takes, one after the other; the first one may compile."""
        learner = self.learner.fork()
        times = []
        for number in range(steps):
            began = time.perf_counter()
            learner, _ = self.run(function, learner, number)
            self.synchronize()
            times.append(time.perf_counter() - began)
        return times

    @property
    def parameter_bytes(self) -> int:
        """The bytes of all parameters."""
        return sum(param.numel * param.val().dtype.itemsize for _, param in self.learner.model.named_params())

    def explain(self) -> Explanation:
        """How the training step is compiled.  Raises: TraceError where it cannot be."""
        learner = self.learner.fork()
        return self.compiled().explain(learner.model, learner.optim, self.batch, self.lr, fold(KEY, 0))

    def explain_valid(self) -> Explanation:
        """How the validation step is compiled.  Raises: TraceError where it cannot be."""
        model = self.learner.model.valid()
        compiled = compile(valid_step, precision=self.precision, fuse=self.settings.config.fuse)
        return compiled.explain(model, self.valid_batch, KEY)

    def layers(self) -> list[Layer]:
        """The layers of a validation step, in the order in which they run.  Raises: TraceError."""
        return layers_of(self.learner.model, self.explain_valid().graph)

    def synchronize(self) -> None:
        """Waits until the device has done all that it was given."""
        self.device.sync()


def first(loader: Any) -> Any:
    """The first batch of the first epoch."""
    with loader.epoch(0) as batches:
        return next(batches)


# -- words for what there is ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """One run of a layer: where it is, what it is, what it gives.  Parameters of layers inside it are not counted."""

    path: str
    kind: str
    shape: tuple[int, ...] | None
    params: int


def layers_of(model: Module, graph: Graph) -> list[Layer]:
    """The layers that made the nodes of a graph, one entry a run."""
    counts: dict[str, int] = {}
    for name, param in model.named_params():
        home = name.rpartition(".")[0]
        counts[home] = counts.get(home, 0) + param.numel
    runs = [
        (path, list(nodes)[-1])
        for path, nodes in groupby(graph.nodes, lambda node: node.origin.path if node.origin is not None else "")
        if path
    ]
    paths = [path for path, _ in runs]
    layers = []
    for number, (path, last) in enumerate(runs):
        if any(other.startswith(f"{path}.") for other in paths) and path in paths[number + 1 :]:
            continue  # of a layer that holds others, only what it gives in the end
        result = last.call.results[0]
        shape = None if result is None else result.shape
        layers.append(Layer(path, type(_at(model, path)).__name__, shape, counts.get(path, 0)))
    return layers


def _at(model: object, path: str) -> object:
    for name in path.split("."):
        if isinstance(model, dict):
            model = model[name]
        else:
            model = model[int(name)] if isinstance(model, tuple | list) else getattr(model, name)
    return model


def operations(graph: Graph) -> Counter[str]:
    """How often each operation occurs that computes on tensors."""
    return Counter(node.call.op.name for node in graph.nodes if not node.call.op.view and not node.call.is_number)


def leaves_of(value: object, path: str = "batch") -> Iterator[tuple[str, object]]:
    """The tensors of a batch and what else it holds, with their paths: batch.images, batch[0]."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Tensor):
        for field in dataclasses.fields(value):
            yield from leaves_of(getattr(value, field.name), f"{path}.{field.name}")
    elif isinstance(value, dict | tuple | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves_of(part, f"{path}[{key!r}]")
    else:
        yield path, value


def described(batch: object) -> Iterator[str]:
    """The tensors of a batch, one line each: batch.images (64, 8, 8) f32."""
    for path, x in leaves_of(batch):
        yield f"{path} {tuple(x.shape)} {x.dtype}" if isinstance(x, Tensor) else f"{path} = {x!r}"[:100]


def size(count: float) -> str:
    """Bytes for people: 3.2 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def peak_process_bytes() -> int | None:
    """The largest memory that this process has had; None where the system does not say, as on Windows."""
    if importlib.util.find_spec("resource") is None:
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
