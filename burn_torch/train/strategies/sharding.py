"""An optimizer whose states lie in parts on several processes (ZeRO, stage 1).

Each parameter has one owner, which has its state and computes its update; then all get the new parameters.  The states
of a model of n parameters under Adam take 8 n bytes on one process, 8 n / world on each of `world`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import burn_torch.distributed as distributed
from burn_torch import ops
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.module import Module, Param, ParamId, Tree
from burn_torch.module.gradients import GradientsParams, params_by_id
from burn_torch.optim import OptimizerRecord
from burn_torch.tensor import Device, Tensor
from burn_torch.train.step import AnyModel

__all__ = ["ShardedOptimizer", "owners"]


def owners(sizes: Sequence[int], world: int) -> list[int]:
    """Who owns each parameter: the largest first, each to the process that has the least so far."""
    loads, owners_of = [0] * world, [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        owner = loads.index(min(loads))
        owners_of[i] = owner
        loads[owner] += sizes[i]
    return owners_of


class ShardedOptimizer(Tree):
    """An optimizer of which this process has the part of rank `rank`.

    `ids` are all parameters in the model's order, the same on all processes, and `owned_by` says whose each is.
    """

    inner: Any
    ids: tuple[ParamId, ...]
    owned_by: tuple[int, ...]
    rank: int
    world: int

    @staticmethod
    def of(optim: Any, model: Module, rank: int, world: int) -> ShardedOptimizer:
        """An optimizer cut for a model."""
        params = {ident: param for ident, param in params_by_id(model).items() if param.require_grad}
        owned_by = owners([param.val().spec.numel for param in params.values()], world)
        sharded = ShardedOptimizer(optim, tuple(params), tuple(owned_by), rank, world)
        return sharded.load_record(optim.to_record()) if optim.is_settled() else sharded

    @property
    def mine(self) -> frozenset[ParamId]:
        """The parameters of this process."""
        return frozenset(ident for ident, owner in zip(self.ids, self.owned_by, strict=True) if owner == self.rank)

    def with_ids(self, ids: Mapping[ParamId, ParamId]) -> Self:
        """It, for the same parameters under other ids, given by those that they had."""
        inner = self.inner.with_ids(ids) if hasattr(self.inner, "with_ids") else self.inner
        return self._with_fields({"inner": inner, "ids": tuple(ids.get(ident, ident) for ident in self.ids)})

    def is_settled(self) -> bool:
        """Returns whether it has its state; a process that owns nothing has all it needs."""
        return not self.mine or bool(self.inner.is_settled())

    def settled(self, model: Module) -> Self:
        """It, with the states that the first step with `model` starts from."""
        return self._with_fields({"inner": self.inner.settled(self._frozen(model))})

    def step(self, lr: object, model: AnyModel, gradients: GradientsParams) -> tuple[Any, Self]:
        """The model and the optimizer after one update, the same model on all processes."""
        mine = self.mine
        own = GradientsParams({ident: gradient for ident, gradient in gradients.items() if ident in mine})
        stepped, inner = self.inner.step(lr, model, own)
        changed = [ident for ident in self.ids if ident in gradients]
        return self._gather(model, stepped, changed), self._with_fields({"inner": inner})

    def _frozen(self, model: Module) -> Module:
        mine = self.mine
        return model.map_params(lambda p: p if p.id in mine else p.set_require_grad(False))

    def _gather(self, model: AnyModel, stepped: Any, changed: Sequence[ParamId]) -> object:
        """All processes' new parameters: for each type one transfer, in which each has as much room as the largest."""
        if self.world == 1:
            return stepped
        owner = dict(zip(self.ids, self.owned_by, strict=True))
        params = params_by_id(stepped)
        bare = {ident: _bare(params[ident].val()) for ident in changed}
        new: dict[ParamId, Tensor] = {}
        for dtype in dict.fromkeys(x.dtype for x in bare.values()):
            runs = [[i for i in changed if owner[i] == rank and bare[i].dtype is dtype] for rank in range(self.world)]
            room = max(sum(bare[i].spec.numel for i in run) for run in runs)
            own = [bare[i].reshape(bare[i].spec.numel) for i in runs[self.rank]]
            used = sum(x.spec.numel for x in own)
            some = next(iter(bare.values()))
            if used < room:
                own.append(Tensor.full((room - used,), 0.0, (some.device, dtype)))
            every = cast(Tensor, ops.all_gather(ops.cat(*own, dim=0), world=self.world))
            for rank, run in enumerate(runs):
                at = 0
                for ident in run:
                    size = bare[ident].spec.numel
                    part = every.narrow(0, rank, 1).reshape(room).narrow(0, at, size)
                    new[ident] = part.reshape(bare[ident].shape)
                    at += size
        return model.map_params(lambda p: _replace_value(p, new[p.id]) if p.id in new else p)

    # -- records ------------------------------------------------------------------------------------
    def to_record(self) -> OptimizerRecord:
        """The states of all processes, as one process with the whole optimizer would have them.

        All processes come to it together.
        """
        own = self.inner.to_record()
        if self.world == 1:
            return own  # type: ignore[no-any-return]  # any optimizer: its record
        place = {ident: i for i, ident in enumerate(self.ids)}
        described = [
            [place[ident], time, [[name, x.dtype.name, list(x.shape)] for name, x in slots.items()]]
            for ident, (time, slots) in own.states.items()
        ]
        host = Device.cpu()
        states: dict[ParamId, tuple[int, dict[str, Tensor]]] = {}
        for source, rows in enumerate(distributed.gather(described)):
            for at, time, slots in rows:
                named: dict[str, Tensor] = {}
                for name, dtype, shape in slots:
                    if source == self.rank:
                        sent = own.states[self.ids[at]][1][name].to_device(host)
                    else:
                        sent = Tensor.from_data(TensorData.zeros(shape, DType.of(dtype)), host)
                    named[name] = distributed.broadcast(sent, source)
                states[self.ids[at]] = (time, named)
        ordered = {ident: states[ident] for ident in self.ids if ident in states}
        return OptimizerRecord(own.kind, ordered)

    def load_record(self, record: OptimizerRecord, device: Device | None = None) -> Self:
        """It, with its part of the states of a record, of however many processes.

        Raises: RecordError for the record of another kind of optimizer.
        """
        mine = self.mine
        part = OptimizerRecord(record.kind, {ident: state for ident, state in record.states.items() if ident in mine})
        return self._with_fields({"inner": self.inner.load_record(part, device)})


def _bare(value: Tensor) -> Tensor:
    return value.no_grad()


def _replace_value(param: Param, value: Tensor) -> Param:
    return param.with_value(Tensor(param.val().backend, value.primitive, value.spec))
