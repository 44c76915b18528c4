"""Groups of parameters: what belongs to them, what JSON holds of them, and freezing by group."""

from __future__ import annotations

import json
import pickle

import pytest

from burn_torch import ArgumentError, ConfigError, Device, Distribution, Module, Tensor, nn
from burn_torch.module import ParamGroup


class Net(Module):
    """Two layers with a norm between them."""

    first: nn.Linear
    norm: nn.BatchNorm
    last: nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3) -> (batch, 2)."""
        return self.last.forward(self.norm.forward(self.first.forward(x)))


def net() -> Net:
    device = Device.cpu().autodiff()
    linear = nn.LinearConfig(3, 4).init(device), nn.LinearConfig(4, 2).init(device)
    return Net(linear[0], nn.BatchNormConfig(4).init(device), linear[1])


def paths_of(group: ParamGroup, model: Module) -> set[str]:
    ids = set(group.ids_from_module(model))
    return {path for path, param in model.named_params() if param.id in ids}


CASES = [
    (ParamGroup.from_predicate("first"), {"first.weight", "first.bias"}),
    (ParamGroup.from_predicates(["st", "weight"]), {"first.weight", "last.weight"}),
    (ParamGroup.from_any_predicates(["gamma", "beta"]), {"norm.gamma", "norm.beta"}),
    (ParamGroup.from_regexes([r"^(first|norm)", r"a$"]), {"norm.gamma", "norm.beta"}),
    (ParamGroup.from_any_regexes([r"gamma$", r"^last\.b"]), {"norm.gamma", "last.bias"}),
    (ParamGroup.all() - ParamGroup.from_path("norm") - ParamGroup.from_predicate("b"), {"first.weight", "last.weight"}),
    (ParamGroup.from_path("norm") | ParamGroup.from_paths(["last.bias"]), {"norm.gamma", "norm.beta", "last.bias"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("group", "paths"), CASES, ids=lambda part: str(part) if isinstance(part, ParamGroup) else " ".join(sorted(part))
)
def test_a_group_read_back_has_the_same_parameters(group: ParamGroup, paths: set[str]) -> None:
    model = net()
    again = ParamGroup.deserialize(json.loads(json.dumps(group.serialize())))
    assert paths_of(group, model) == paths_of(again, model) == paths_of(pickle.loads(pickle.dumps(group)), model)
    assert paths_of(group, model) == paths
    assert again == group
    assert str(again) == str(group)


def test_ids_are_written_as_text() -> None:
    model = net()
    group = ParamGroup.from_ids([model.first.weight.id])
    assert ParamGroup.deserialize(group.serialize()).ids_from_module(model) == [model.first.weight.id]


def test_a_function_tells_a_group_but_is_not_written() -> None:
    group = ParamGroup.from_predicates([lambda path: path.startswith("n"), "beta"])
    assert paths_of(group, net()) == {"norm.beta"}
    with pytest.raises(ConfigError, match=r"given: +the predicate <lambda>[\s\S]*mend: +say it by a text"):
        group.serialize()


@pytest.mark.parametrize(
    "written",
    [{}, {"paths": [3]}, {"every": []}, {"all": ["x"]}, {"without": [{"all": []}]}, {"ids": ["x"]}, {"any": ["x"]},
     {"paths": "first"}, {"all": [], "ids": []}],
)  # fmt: skip
def test_what_serialize_did_not_write_is_refused(written: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"not a group that serialize wrote[\s\S]*expected: +one rule"):
        ParamGroup.deserialize(written)


def test_a_frozen_group_has_no_gradients_and_is_trained_again_when_unfrozen() -> None:
    model = net()
    head = ParamGroup.from_path("last")
    x = Tensor.random((5, 3), Distribution.Default, model.first.weight.device)
    frozen = model.freeze_group(ParamGroup.all() - head)
    grads = frozen.forward(x).square().sum().backward()
    has_gradient = {path for path, param in frozen.named_params() if param.val().grad(grads) is not None}
    assert has_gradient == {"last.weight", "last.bias"}
    assert frozen.norm.gamma.id == model.norm.gamma.id
    assert frozen.last.weight is model.last.weight
    again = frozen.unfreeze_group(ParamGroup.from_path("norm"))
    assert {path for path, param in again.named_params() if param.require_grad} == has_gradient | {
        "norm.gamma",
        "norm.beta",
    }


def test_a_shared_parameter_is_frozen_by_any_of_its_paths() -> None:
    linear = nn.LinearConfig(4, 4).init(Device.cpu().autodiff())

    class Tied(Module):
        one: nn.Linear
        two: nn.Linear

    tied = Tied(linear, linear).freeze_group(ParamGroup.from_path("two.weight"))
    assert not tied.one.weight.require_grad
    assert tied.one.bias is not None
    assert tied.one.bias.require_grad


def test_the_record_of_a_group_has_its_values_alone() -> None:
    model, other = net(), net()
    group = ParamGroup.from_path("norm")
    record = model.into_record_group(group)
    assert set(record) == {"norm.gamma", "norm.beta", "norm.running_mean", "norm.running_var"}
    head = model.into_record_group(ParamGroup.from_path("last"))
    loaded = other.load_record(head.allow_partial())
    assert loaded.last.weight.val().into_data() == model.last.weight.val().into_data()
    assert loaded.first.weight is other.first.weight


def test_groups_without_parameters_and_texts_are_refused() -> None:
    model = net()
    for act in (model.freeze_group, model.unfreeze_group, model.into_record_group):
        with pytest.raises(
            ArgumentError, match=r"no parameter of this group[\s\S]*the group frist[\s\S]*first\.weight"
        ):
            act(ParamGroup.from_path("frist"))
        with pytest.raises(ArgumentError, match=r"group[\s\S]*'first'"):
            act("first")  # type: ignore[arg-type]
