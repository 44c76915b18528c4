"""Modules as values: containers, sharing, copies, devices, and parameters that are made late."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Module, Tensor, seed
from burn_torch.core.errors import ArgumentError, DeviceError
from burn_torch.module import ModuleMapper, ModuleVisitor, Param, ParamId, Tree
from burn_torch.nn import BatchNormConfig, Linear, LinearConfig, Relu, TransformerEncoderConfig

DEVICE = Device.cpu().autodiff()


class Nest(Module):
    tree: dict[str, Any]
    absent: Linear | None
    mixed: Any


def linear() -> Linear:
    return LinearConfig(3, 3).init(DEVICE)


def nest() -> Nest:
    shared = linear()
    return Nest({"x": [shared, None], "y": (linear(),)}, None, [{"k": shared}, 3, "text"])


def array(value: Param | Tensor) -> Any:
    return (value.val() if isinstance(value, Param) else value).into_data().array


class Doubled(ModuleMapper):
    def map_float(self, param: Param) -> Param:
        return param.map(lambda value: value * 2)


def test_nested_containers_are_walked_and_rebuilt_with_sharing() -> None:
    module = nest()
    assert [path for path, _ in module.named_params()] == [
        "tree.x.0.weight", "tree.x.0.bias", "tree.y.0.weight", "tree.y.0.bias",
    ]  # fmt: skip
    assert module.num_params() == 24
    for changed in (module.map(Doubled()), module.valid(), module.valid().train(), module.fork(DEVICE),
                    module.no_grad(), module.load_record(module.into_record())):  # fmt: skip
        assert changed.tree["x"][0] is changed.mixed[0]["k"]
        assert changed.tree["x"][1] is None
        assert changed.mixed[1:] == (3, "text")
    doubled = module.map(Doubled())
    assert np.array_equal(array(doubled.tree["y"][0].weight), 2 * array(module.tree["y"][0].weight))


def test_a_list_or_dict_that_changes_later_is_not_the_modules() -> None:
    layers, named = [linear()], {"a": linear()}
    module = Nest(named, None, layers)
    layers.clear()
    named.clear()
    assert module.num_params() == 24


def test_a_mapper_that_changes_nothing_gives_the_same_module() -> None:
    module = nest()
    assert module.map(ModuleMapper()) is module


def test_a_visitor_sees_containers() -> None:
    containers: list[tuple[str, str]] = []

    class Told(ModuleVisitor):
        def enter_module(self, name: str, container: str) -> None:
            containers.append((name, container))

    Nest({"a": [linear()]}, None, None).visit(Told())
    assert containers == [
        ("tree", "Dict"),
        ("a", "Tuple"),
        ("0", "Struct:Linear"),
        ("weight", "Param"),
        ("bias", "Param"),
    ]


@pytest.mark.parametrize("name", ["map", "valid", "train", "devices", "format"])
def test_a_field_with_the_name_of_a_method_is_refused(name: str) -> None:
    with pytest.raises(
        ArgumentError,
        match=rf"class Bad: the name {name} is taken\n  given:    a field {name}, which Module has as a method\n"
        rf"  expected: .*\n  mend:     call it something else, such as {name}_layer",
    ):
        type("Bad", (Module,), {"__annotations__": {name: Linear}})


def test_a_field_with_a_function_as_its_own_default_is_allowed() -> None:
    def double(x: float) -> float:
        return 2 * x

    class Fine(Tree):
        scale: Any = double  # the default of a field, not a method

    assert Fine().scale is double


# -- copies -----------------------------------------------------------------------------------------
def test_fork_of_a_parameter_not_yet_made_is_another_leaf_with_the_same_value() -> None:
    module = linear()
    forked = module.fork(DEVICE)
    assert forked.weight is not module.weight
    assert not module.weight.is_initialized()
    assert np.array_equal(array(forked.weight), array(module.weight))
    assert forked.weight.id == module.weight.id


@pytest.mark.parametrize("copied", [
    lambda norm: norm.fork(DEVICE), lambda norm: norm.valid(), lambda norm: norm.to_device(DEVICE.inner()),
    lambda norm: norm.valid().train(),
])  # fmt: skip
def test_statistics_of_a_copy_stay_when_the_original_trains(copied: Any, seed: np.random.Generator) -> None:
    norm = BatchNormConfig(3).init(DEVICE)
    other = copied(norm)
    norm.forward(Tensor.from_data(seed.normal(2.0, 1.0, (8, 3)).astype(np.float32), DEVICE))
    assert array(norm.running_mean.value()).any()
    assert not array(other.running_mean.value()).any()


def test_to_the_same_device_is_the_same_module() -> None:
    norm = BatchNormConfig(3).init(DEVICE)
    assert norm.to_device(DEVICE) is norm


def test_valid_of_a_module_without_tensors_is_itself() -> None:
    class Plain(Module):
        activation: Relu

    module = Plain(Relu())
    assert module.valid() is module
    assert module.train() is module


def test_valid_of_a_module_in_inference_is_refused() -> None:
    with pytest.raises(
        DeviceError, match=r"already on a device without gradients\n  given:    .*\n  expected: .*\n  mend:     use it"
    ):
        linear().valid().valid()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_keep_values_ids_and_sharing(copied: Any) -> None:
    module = nest()
    other = copied(module)
    assert other.tree["x"][0].weight is other.mixed[0]["k"].weight
    assert [param.id for _, param in other.named_params()] == [param.id for _, param in module.named_params()]
    assert np.array_equal(array(other.tree["x"][0].weight), array(module.tree["x"][0].weight))


def test_a_deep_copy_keeps_the_mappers_of_a_parameter() -> None:
    param = copy.deepcopy(Param.from_data(np.ones(2), DEVICE).save_mapper(lambda value: value * 2))
    assert array(param.transform_for_save()).tolist() == [2.0, 2.0]


# -- parameters that are made late ------------------------------------------------------------------------
def test_threads_that_read_first_see_one_value() -> None:
    module = LinearConfig(200, 200).init(DEVICE)
    arrays: list[Any] = []
    threads = [threading.Thread(target=lambda: arrays.append(array(module.valid().weight))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(arrays) == 8
    assert all(np.array_equal(one, array(module.weight)) for one in arrays)


def test_the_same_seed_makes_the_same_parameters_whatever_the_order_of_reading_and_the_leaf() -> None:
    parameters = []
    for device in (Device.cpu(), Device.ndarray()):
        for backwards in (False, True):
            seed(7)
            params = list(TransformerEncoderConfig(8, 16, 2, 1).init(device).named_params())
            for _, param in params[:: -1 if backwards else 1]:
                param.val()
            parameters.append([array(param) for _, param in params])
    assert all(np.array_equal(a, b) for other in parameters[1:] for a, b in zip(parameters[0], other, strict=True))


def test_a_late_parameter_of_integers_asks_for_no_gradient() -> None:
    def make(device: Device, require_grad: bool) -> Tensor:
        return Tensor.from_data(np.arange(3), device)

    param = Param.uninitialized(ParamId.new(), make, DEVICE, True, (3,))
    assert array(param).tolist() == [0, 1, 2]
    assert not param.require_grad


@pytest.mark.parametrize(
    ("name", "here"),
    [("parameters", r"named_params\(\)"), ("state_dict", r"into_record\(\)"), ("eval", r"valid\(\)"), ("to", "to_dev")],
)
def test_a_method_of_pytorchs_modules_is_answered_with_ours(name: str, here: str) -> None:
    layer = LinearConfig(2, 2).init(Device.cpu())
    with pytest.raises(AttributeError, match=rf"Linear has no attribute '{name}'[\s\S]*mend: +{here}"):
        getattr(layer, name)
    with pytest.raises(AttributeError, match=r"has no attribute weights$"):
        _ = layer.weights
    assert not hasattr(layer, name)


def test_identities_from_a_seed_are_the_same_ones_and_all_others_are_not():
    with ParamId.seeded(3):
        first = [ParamId.new() for _ in range(4)]
        with ParamId.seeded(4):
            inner = ParamId.new()
        first.append(ParamId.new())
    with ParamId.seeded(3):
        again = [ParamId.new() for _ in range(5)]
    assert first == again
    assert len({*first, inner, ParamId.new(), ParamId.new()}) == 8
    assert all(0 <= ident < 1 << 63 for ident in first)


def test_models_of_one_seed_write_the_same_bytes(tmp_path):
    from burn_torch import seed
    from burn_torch.nn import LinearConfig

    for name in ("one", "other"):
        seed(5)
        with ParamId.seeded(5):
            LinearConfig(3, 4).init(DEVICE).save_file(tmp_path / f"{name}.safetensors")
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "other.safetensors").read_bytes()
