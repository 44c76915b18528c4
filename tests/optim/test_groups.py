"""Parameter groups: who belongs where, and updates that are those of each group's own optimizer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from burn_torch import ConfigError, Device, RecordError, compile, seed
from burn_torch.module import GradientsParams, Module, ParamId
from burn_torch.nn import Linear, LinearConfig
from burn_torch.optim import (
    AdamConfig,
    ConstantLr,
    GroupedLrScheduler,
    GroupedOptimizer,
    LearningRates,
    LinearLrSchedulerConfig,
    MomentumConfig,
    OptimizerRecord,
    ParamGroup,
    SgdConfig,
)


class Net(Module):
    backbone: Linear
    head: Linear


def net() -> Net:
    seed(1)
    device = Device.cpu().autodiff()
    return Net(LinearConfig(3, 4).init(device), LinearConfig(4, 2).init(device))


def gradients(model: Net, number: int) -> GradientsParams:
    rng = np.random.default_rng(number)
    grads = {}
    for _, param in model.named_params():
        value = param.val().inner()
        grads[param.id] = type(value).from_data(rng.normal(size=value.shape).astype(np.float32), value.device)
    return GradientsParams(grads)


def groups() -> dict[str, tuple[ParamGroup, Any]]:
    return {
        "backbone": (ParamGroup.from_path("backbone"), AdamConfig().init()),
        "head": (ParamGroup.from_regex(r"head\..*"), SgdConfig(momentum=MomentumConfig()).init()),
    }


def values(model: Module) -> dict[str, Any]:
    return {path: param.val().into_data().array for path, param in model.named_params()}


def test_each_group_is_updated_by_its_own_optimizer_and_rate() -> None:
    model = net()
    optim = GroupedOptimizer.of(model, groups())
    alone = {"backbone": model, "head": model}
    own = {name: one for name, (_, one) in groups().items()}
    stepped = model
    for number in range(3):
        grads = gradients(model, number)
        stepped, optim = optim.step({"backbone": 0.1, "head": 0.01}, stepped, grads)
        for name, lr in (("backbone", 0.1), ("head", 0.01)):
            part = GradientsParams(
                {i: g for i, g in grads.items() if i in ParamGroup.from_path(name).ids_from_module(model)}
            )
            alone[name], own[name] = own[name].step(lr, alone[name], part)
    new_values = values(stepped)
    for path, value in new_values.items():
        np.testing.assert_array_equal(value, values(alone[path.partition(".")[0]])[path])


def test_a_compiled_update_has_the_same_bits_and_one_trace() -> None:
    model = net()

    def step(model: Net, optim: Any, grads: Any, lr: Any) -> Any:
        return optim.step(lr, model, GradientsParams(dict(zip(ids, grads, strict=True))))

    ids = [param.id for _, param in model.named_params()]
    compiled = compile(step)
    one, other = (model, GroupedOptimizer.of(model, groups())), (model, GroupedOptimizer.of(model, groups()))
    for number in range(3):
        grads = tuple(g for _, g in gradients(model, number).items())
        lr = {"backbone": 0.1 / (1 + number), "head": 0.01}
        one, other = step(*one, grads, lr), compiled(*other, grads, lr)
    for path, value in values(one[0]).items():
        np.testing.assert_array_equal(value, values(other[0])[path])
    assert compiled.traces == 1


def test_records_go_on_where_they_were_made() -> None:
    model = net()
    optim = GroupedOptimizer.of(model, groups())
    for number in range(2):
        model, optim = optim.step(0.1, model, gradients(model, number))
    record = OptimizerRecord.from_bytes(optim.to_record().into_bytes())
    fresh = GroupedOptimizer.of(model, groups()).load_record(record)
    wanted, _ = optim.step(0.1, model, gradients(model, 9))
    stepped, _ = fresh.step(0.1, model, gradients(model, 9))
    for path, value in values(wanted).items():
        np.testing.assert_array_equal(value, values(stepped)[path])
    with pytest.raises(RecordError, match=r"other parameter groups[\s\S]*Grouped\(all=Adam\)"):
        GroupedOptimizer.of(model, {"all": (ParamGroup.all(), AdamConfig().init())}).load_record(record)


def test_all_faults_of_groups_are_listed() -> None:
    with pytest.raises(
        ConfigError, match=r"(?s)4 faults.*backbone\.weight: in no group.*head\.weight in one, two: in several groups"
    ) as caught:
        GroupedOptimizer.of(
            net(),
            {
                "one": (ParamGroup.from_path("head"), AdamConfig().init()),
                "two": (ParamGroup.from_predicate(lambda path: path == "head.weight"), AdamConfig().init()),
                "none": (ParamGroup.from_path("tail"), AdamConfig().init()),
            },
        )  # fmt: skip
    assert "none: tail: a group without parameters" in str(caught.value)


def test_the_rest_takes_what_is_left() -> None:
    model = net()
    optim = GroupedOptimizer.of(
        model, {"bias": (ParamGroup.from_any_regexes([r".*\.bias"]), SgdConfig().init())}, rest=AdamConfig().init()
    )
    assert list(optim.optimizers) == ["bias", "rest"]
    assert [len(ids) for ids in optim.members] == [2, 2]
    with pytest.raises(ConfigError, match="two groups of one name"):
        GroupedOptimizer.of(model, {"rest": (ParamGroup.from_path("head"), AdamConfig().init())}, AdamConfig().init())


def test_groups_combine() -> None:
    model = net()
    paths = {param.id: path for path, param in model.named_params()}

    def names(group: ParamGroup) -> set[str]:
        return {paths[ident] for ident in group.ids_from_module(model)}

    head, bias = ParamGroup.from_path("head"), ParamGroup.from_regex(r".*\.bias")
    assert (
        names(ParamGroup.from_regex(r"bias$")) == names(ParamGroup.from_regex(r"d\.b|e\.b")) == names(bias)
    )  # searches
    assert names(head | bias) == {"head.weight", "head.bias", "backbone.bias"}
    assert names(head - bias) == {"head.weight"}
    assert names(ParamGroup.all()) == set(paths.values())
    assert names(ParamGroup.from_paths(["head.bias", "backbone"])) == {"head.bias", "backbone.weight", "backbone.bias"}
    assert names(ParamGroup.from_path("head.bias")) == {"head.bias"}  # a parameter's path is that parameter alone
    assert names(ParamGroup.from_path("head.bia")) == names(ParamGroup.from_path("ead.bias")) == set()
    assert names(ParamGroup.from_path("hea")) == set()
    some = next(iter(paths))
    assert ParamGroup.from_ids([some]).ids_from_module(model) == [some]
    assert not ParamGroup.from_ids([some]).matches(ParamId(1), "")
    with pytest.raises(ConfigError, match=r"not a regular expression[\s\S]*'\(head'"):
        ParamGroup.from_regex("(head")


def test_wrong_rates_and_foreign_gradients_are_reported() -> None:
    model = net()
    optim = GroupedOptimizer.of(model, groups())
    with pytest.raises(ConfigError, match=r"learning rates are of other groups[\s\S]*backbone, tail"):
        optim.step({"backbone": 0.1, "tail": 0.1}, model, gradients(model, 0))
    other = net().map_params(lambda p: p.set_require_grad(True))
    with pytest.raises(ConfigError, match=r"belong to no group[\s\S]*backbone\.weight"):
        optim.step(0.1, other, gradients(other, 0))


def test_schedules_of_groups_step_and_resume() -> None:
    def made() -> GroupedLrScheduler:
        return GroupedLrScheduler({"backbone": 1e-3, "head": LinearLrSchedulerConfig(0.1, 0.0, 10)})

    rates = made()
    assert rates.lr_at(0).groups == {"backbone": 1e-3, "head": 0.1}
    first = rates.step()
    assert isinstance(first, LearningRates)
    assert (float(first), first.groups["head"]) == (1e-3, 0.1)
    assert rates.step().groups["head"] == pytest.approx(0.09)
    resumed = made().load_record(rates.to_record())
    assert resumed.step() == 1e-3
    assert made().load_record(rates.to_record()).step().groups["head"] == pytest.approx(0.08)  # type: ignore[attr-defined]  # LearningRates
    with pytest.raises(RecordError, match=r"schedules of other groups[\s\S]*backbone, head"):
        GroupedLrScheduler({"one": ConstantLr(1.0)}).load_record(rates.to_record())
    with pytest.raises(ConfigError, match="there is no group"):
        GroupedLrScheduler({})
