"""Parameter groups: parameters of one model with optimizers and schedules of their own.

optim = GroupedOptimizer.of(
    model,
    {
        "backbone": (ParamGroup.from_path("backbone"), AdamWConfig(weight_decay=0.1).init()),
        "head": (ParamGroup.from_regex(r"^head\\."), SgdConfig().init()),
    },
)
rates = GroupedLrScheduler({"backbone": 1e-4, "head": CosineAnnealingLrSchedulerConfig(1e-2, 1000)})
learner = Learner(model, optim, rates)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from burn_torch.core.checking import checked
from burn_torch.core.errors import ConfigError, RecordError
from burn_torch.core.faults import Place, raise_faults
from burn_torch.module import Module, ParamGroup, ParamId, Tree
from burn_torch.module.fields import require_declared
from burn_torch.module.gradients import GradientsParams, params_by_id
from burn_torch.optim.record import LrSchedulerRecord, OptimizerRecord
from burn_torch.optim.scheduler import LrScheduler, scheduler_of
from burn_torch.tensor import Device

__all__ = ["GroupedLrScheduler", "GroupedOptimizer", "LearningRates", "ParamGroup"]


@checked(error=ConfigError)
class LearningRates(float):
    """A learning rate for each group; as a number, that of the first one."""

    groups: Mapping[str, float]

    def __new__(cls, groups: Mapping[str, float]) -> LearningRates:
        """The rates by the names of the groups."""
        if not isinstance(groups, Mapping) or not groups:
            raise ConfigError(
                "LearningRates: a rate for each group is needed",
                given=f"{groups!r:.80}",
                expected="a mapping of names of groups to numbers, of one group at least",
                mend='LearningRates({"all": 0.1})',
            )
        rates = super().__new__(cls, next(iter(groups.values())))
        rates.groups = dict(groups)
        return rates


@checked(but=("step", "is_settled", "settled"))
class GroupedOptimizer(Tree):
    """Optimizers by name, each of the parameters of its group; see `of`.

    A step takes one learning rate for all, or a mapping from group to rate.
    """

    optimizers: dict[str, Any]
    members: tuple[tuple[ParamId, ...], ...]
    """The parameters of each group, in the order of `optimizers`."""
    _require_declared = require_declared

    @staticmethod
    def of(
        model: Module, groups: Mapping[str, tuple[ParamGroup, object]], rest: object = None, *, rest_name: str = "rest"
    ) -> GroupedOptimizer:
        """Every trainable parameter of a model in exactly one group; `rest` takes those that no group has.

        Raises: ConfigError that lists parameters in no group or in several, and groups without parameters.
        """
        place = Place()
        members: dict[str, list[ParamId]] = {name: [] for name in groups}
        left: list[ParamId] = []
        seen: set[ParamId] = set()
        for path, param in model.named_params():
            if not param.require_grad or param.id in seen:
                continue
            seen.add(param.id)
            names = [name for name, (group, _) in groups.items() if group.matches(param.id, path)]
            for name in names:
                members[name].append(param.id)
            if len(names) > 1:
                shown = f"{path} in {', '.join(names)}"
                mend = f"leave it out of the others: group - ParamGroup.from_path({path!r})"
                place.fault("in several groups", given=shown, expected="one group", mend=mend)
            if not names:
                left.append(param.id)
                if rest is None:
                    place.fault("in no group", given=path, expected="one group", mend="add it to one, or give `rest`")
        for name, ids in members.items():
            if not ids:
                shown = f"{name}: {groups[name][0]!r}"
                mend = "look at the paths: model.named_params()"
                place.fault("a group without parameters", given=shown, expected="a trainable parameter", mend=mend)
        if rest_name in groups and rest is not None:
            place.fault("two groups of one name", given=rest_name, expected="names that differ", mend="give rest_name")
        if place.faults:
            raise_faults("GroupedOptimizer", place.faults, error=ConfigError)
        optimizers = {name: optim for name, (_, optim) in groups.items()}
        if left:
            optimizers[rest_name], members[rest_name] = rest, left
        return GroupedOptimizer(optimizers, tuple(map(tuple, members.values())))

    def is_settled(self) -> bool:
        """Returns whether all of them have their states."""
        return all(optim.is_settled() for optim in self.optimizers.values())

    def settled(self, model: Module) -> Self:
        """It, with the states that the first step with `model` starts from."""
        settled = {}
        for (name, optim), ids in zip(self.optimizers.items(), self.members, strict=True):
            mine = frozenset(ids)
            settled[name] = optim.settled(_only(model, mine))
        return self._with_fields({"optimizers": settled})

    def step(self, lr: Any, model: Any, gradients: GradientsParams) -> tuple[Any, Self]:
        """The model and the optimizer after one update of the parameters that have a gradient.

        Raises: ConfigError for learning rates of other groups, and for a gradient of a parameter in no group.
        """
        rates = lr.groups if isinstance(lr, LearningRates) else lr
        if isinstance(rates, Mapping) and set(rates) != set(self.optimizers):
            raise ConfigError(
                "GroupedOptimizer.step: the learning rates are of other groups",
                given=", ".join(rates) or "none",
                expected=", ".join(self.optimizers),
                mend="give each group a rate, or one number for all",
            )
        known = {ident for ids in self.members for ident in ids}
        foreign = [ident for ident in gradients if ident not in known and ident in params_by_id(model)]
        if foreign:
            paths = [path for path, param in model.named_params() if param.id in foreign]
            raise ConfigError(
                "GroupedOptimizer.step: these parameters belong to no group",
                given=", ".join(paths[:5]),
                expected="gradients of the parameters that the groups were made of",
                mend="make it anew: GroupedOptimizer.of(model, ...)",
            )
        stepped = {}
        for (name, optim), ids in zip(self.optimizers.items(), self.members, strict=True):
            part = GradientsParams({i: g for i in ids if (g := gradients.get(i)) is not None})
            if part.is_empty():
                stepped[name] = optim
                continue
            rate = rates[name] if isinstance(rates, Mapping) else rates
            model, stepped[name] = optim.step(rate, model, part)
        return model, self._with_fields({"optimizers": stepped})

    def with_ids(self, ids: Mapping[ParamId, ParamId]) -> Self:
        """It, for the same parameters under other ids, given by those that they had."""
        members = tuple(tuple(ids.get(ident, ident) for ident in group) for group in self.members)
        return self._with_fields({"members": members})

    # -- records --------------------------------------------------------------------------------------
    def _kind(self) -> str:
        return f"Grouped({', '.join(f'{name}={type(one).__name__}' for name, one in self.optimizers.items())})"

    def to_record(self) -> OptimizerRecord:
        """The states of all groups."""
        states = {}
        for optim in self.optimizers.values():
            states.update(optim.to_record().states)
        return OptimizerRecord(self._kind(), states)

    def load_record(self, record: OptimizerRecord, device: Device | None = None) -> Self:
        """It, with the states of a record.  Raises: RecordError for the record of other groups or optimizers."""
        if record.kind != self._kind():
            raise RecordError(
                "this optimizer record belongs to other parameter groups",
                given=f"a record of {record.kind}",
                expected=f"a record of {self._kind()}",
                mend="resume with the groups that the run was started with",
            )
        restored = {}
        for (name, optim), ids in zip(self.optimizers.items(), self.members, strict=True):
            states = {ident: record.states[ident] for ident in ids if ident in record.states}
            restored[name] = optim.load_record(OptimizerRecord(type(optim).__name__, states), device)
        return self._with_fields({"optimizers": restored})


@checked(error=ConfigError)
class GroupedLrScheduler(LrScheduler):
    """A schedule for each group; each may be a number, a schedule or its configuration."""

    def __init__(self, schedules: Mapping[str, Any]) -> None:
        super().__init__()
        if not schedules:
            raise ConfigError(
                "GroupedLrScheduler: there is no group",
                given="no schedules",
                expected="one for each group",
                mend='GroupedLrScheduler({"backbone": 1e-4, "head": 1e-3})',
            )
        self.schedules: Final = {name: scheduler_of(schedule) for name, schedule in schedules.items()}

    def lr_at(self, step: int) -> LearningRates:
        """The rates of a step."""
        return LearningRates({name: schedule.lr_at(step) for name, schedule in self.schedules.items()})

    def step(self) -> LearningRates:
        """The rates of the next step."""
        self.taken += 1
        return LearningRates({name: schedule.step() for name, schedule in self.schedules.items()})

    def to_record(self) -> LrSchedulerRecord:
        """How many steps were taken, and the record of each group's schedule."""
        record = super().to_record()
        for name, schedule in self.schedules.items():
            record = record.with_record(f"group {name}", schedule.to_record())
        return record

    def load_record(self, record: Mapping[str, Any]) -> LrScheduler:
        """The schedules, gone on to where the record was made.  Raises: RecordError for that of other groups."""
        names = {str(key).removeprefix("group ") for key in record if str(key).startswith("group ")}
        if names != set(self.schedules):
            raise RecordError(
                "this record belongs to schedules of other groups",
                given=", ".join(sorted(names)) or "a record of no groups",
                expected=", ".join(self.schedules),
                mend="resume with the groups that the run was started with",
            )
        super().load_record(record)
        for name, schedule in self.schedules.items():
            schedule.load_record(record[f"group {name}"])
        return self


def _only(model: Module, ids: frozenset[ParamId]) -> Module:
    """The model with these parameters trainable alone."""
    return model.map_params(lambda p: p if p.id in ids else p.set_require_grad(False))
