"""Several processes with one device each, over torch.distributed: the same model everywhere, each batch in shares."""

from __future__ import annotations

from typing import Any, Final, final

import burn_torch.distributed as distributed
from burn_torch.core.errors import ConfigError
from burn_torch.core.share import Share
from burn_torch.module import Param, ParamId, RunningState
from burn_torch.module.tree import rebuild, walk
from burn_torch.optim import GradientsParams, OptimizerRecord
from burn_torch.tensor import Device, Tensor
from burn_torch.train.learner import AnyLearner, Learner
from burn_torch.train.loop import GradientWindow, items_of, optimized, train_step, updated_steps
from burn_torch.train.step import AnyBatch, AnyModel
from burn_torch.train.strategies.base import StepFunctions
from burn_torch.train.strategies.peers import Peers
from burn_torch.train.strategies.reducing import BUCKET_BYTES, reduced
from burn_torch.train.strategies.sharding import ShardedOptimizer
from burn_torch.train.strategies.single import one_device

__all__ = ["Ddp"]


@final
class Ddp:
    """Data-parallel training by the processes that torchrun started, one device each.

        # torchrun --nproc-per-node 2 train.py
        training.with_training_strategy(Ddp())

    Each process reads its share of each batch, and random layers draw by an item's place in the whole batch: the loss
    is that of one process with all items, up to the order of sums, whatever the number of processes.  Process 0 writes
    the artifact directory.  A run may be resumed by another number of processes.

    device        this process's; by default GPU number LOCAL_RANK where the model lies on a GPU, else the model's
    sharded       each process has the optimizer's states of its share of the parameters alone (ZeRO, stage 1)
    bucket_bytes  how much is sent at once; the transfers run while the backward computes
    timeout_s, silence_s, join_s   see `burn_torch.distributed.init`, which this calls

    What is not the same as in one process: BatchNorm takes its statistics over each process's own items, and their
    running means are averaged; random layers of your own draw by global index only if they use `Tensor.random` or the
    layers of `burn_torch.nn`, on tensors with the items on the first axis.

    Raises: DeviceError for a device without gradients or a model on several; ConfigError for models that differ.
    """

    def __init__(
        self,
        device: Device | None = None,
        *,
        sharded: bool = False,
        bucket_bytes: int = BUCKET_BYTES,
        timeout_s: float = 600.0,
        silence_s: float = 15.0,
        join_s: float | None = None,
    ) -> None:
        if bucket_bytes < 1:
            raise ConfigError(
                "Ddp: a bucket must hold at least one byte",
                given=f"bucket_bytes={bucket_bytes}",
                expected="1 or more",
                mend=f"leave it out: it is {BUCKET_BYTES}",
            )
        self.device: Final = device
        self.sharded: Final = sharded
        self.bucket_bytes: Final = bucket_bytes
        self._timeouts: Final = (timeout_s, silence_s, join_s)
        self.peers = Peers()
        self.functions: Final = _functions(bucket_bytes)

    def prepare(self, learner: AnyLearner, /) -> tuple[AnyLearner, Device]:
        """Joins the others; the learner of process 0 on this process's device."""
        timeout_s, silence_s, join_s = self._timeouts
        world = distributed.init(timeout_s=timeout_s, silence_s=silence_s, join_s=join_s)
        self.peers = Peers(world.rank, world.size)
        device = one_device(learner.model) if self.device is None else self.device
        if self.device is None and device.place.startswith("cuda") and world.size > 1:
            device = Device.cuda(world.local_rank).autodiff()
        model = learner.model.to_device(device)
        one_device(model)
        if world.size > 1:
            _require_alike(model)
            model, ids = _of_main(model)
            learner = Learner(model, _rename_parameters(learner.optim, ids), learner.lr_scheduler)
        learner = learner.with_model(model)
        if self.sharded:
            learner = Learner(
                model, ShardedOptimizer.of(learner.optim, model, world.rank, world.size), learner.lr_scheduler
            )
        return learner, device

    def train_step(self, learner: AnyLearner, batch: AnyBatch, key: int, /) -> tuple[AnyLearner, GradientsParams, Any]:
        """The gradients of a batch of which each process has a part, over all of them."""
        model, grads, item = train_step(learner.model, batch, key)
        model, grads = reduced(model, grads, items_of(item, "Ddp"), None, self.bucket_bytes)
        return learner.with_model(model), grads, item

    def optimizer_step(self, learner: AnyLearner, lr: float, grads: GradientsParams, /) -> AnyLearner:
        """One update."""
        return learner.optimizer_step(lr, grads)


def _functions(bucket_bytes: int) -> StepFunctions:
    def reduce(model: object, grads: GradientsParams, item: object, share: Share | None) -> tuple[Any, GradientsParams]:
        return reduced(model, grads, items_of(item, "Ddp"), share, bucket_bytes)

    def step(
        model: AnyModel, optim: object, batch: AnyBatch, lr: object, key: object, share: Share | None
    ) -> tuple[Any, Any, Any]:
        return updated_steps(model, optim, batch, lr, key, share, reduce)

    def gradients(
        model: AnyModel, window: GradientWindow, batch: AnyBatch, key: Any, share: Share | None
    ) -> tuple[Any, GradientWindow, Any]:
        model, grads, item = train_step(model, batch, key, share)
        return model, window.add(grads, item, share), item

    def update(model: AnyModel, optim: object, window: GradientWindow, lr: object) -> tuple[Any, Any]:
        model, grads = reduced(model, window.take(), 0.0 if window.items is None else window.items, None, bucket_bytes)
        return optimized(model, optim, lr, grads)

    return StepFunctions(step, gradients, update)


def _require_alike(model: AnyModel) -> None:
    described = [f"{path} {param.val().spec.shape} {param.val().dtype}" for path, param in model.named_params()]
    every = distributed.gather(described)
    for rank, other in enumerate(every):
        if other != every[0]:
            differ = sorted(set(every[0]) ^ set(other))
            raise ConfigError(
                "the processes have different models",
                given=f"process {rank} differs from process 0 in {', '.join(differ[:4]) or 'their order'}",
                expected="the same program, configuration and data on all of them",
                mend="build the model from the same configuration in each process",
            )


def _of_main(model: AnyModel) -> tuple[object, dict[ParamId, ParamId]]:
    """The model of process 0: its parameters, their ids and its running states; and the new ids by the old."""
    params = dict(model.named_params())
    mine = [param.id for param in params.values()]
    ids = dict(zip(mine, map(ParamId, distributed.gather([str(int(ident)) for ident in mine])[0]), strict=True))
    values: dict[int, Tensor] = {}
    for _, leaf in walk(model):
        if isinstance(leaf, Param | RunningState) and id(leaf) not in values:
            value = leaf.val() if isinstance(leaf, Param) else leaf.value()
            bare = value.no_grad()
            sent = distributed.broadcast(bare)
            values[id(leaf)] = Tensor(value.backend, sent.primitive, sent.spec)

    def changed(leaf: object) -> Any:
        if isinstance(leaf, Param):
            return Param(values[id(leaf)], ids[leaf.id], require_grad=leaf.require_grad, mapper=leaf.mapper)
        return leaf.with_value(values[id(leaf)]) if isinstance(leaf, RunningState) else leaf

    return rebuild(model, changed), ids


def _rename_parameters(optim: Any, ids: dict[ParamId, ParamId]) -> object:
    """The optimizer with its states under other ids."""
    record = optim.to_record()
    if hasattr(optim, "with_ids"):
        optim = optim.with_ids(ids)
    if record.is_empty():
        return optim
    states = {ids.get(ident, ident): state for ident, state in record.states.items()}
    return optim.load_record(OptimizerRecord(record.kind, states))
