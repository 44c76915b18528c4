"""Ways to write a module that would silently not train, each refused where it is written."""

from __future__ import annotations

import collections
import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from burn_torch import ArgumentError, Device, DTypeError, Module, Param, Tensor, grad, nn
from burn_torch.module import UntrainedWarning
from burn_torch.optim import GradientsParams

AD = Device.cpu().autodiff()
THREE = r"[\s\S]*given: [\s\S]*expected: [\s\S]*mend: +"


def linear() -> nn.Linear:
    return nn.LinearConfig(2, 2).init(AD)


class Holder(Module):
    held: Any


@dataclass
class Plain:
    part: Any


# -- class statements ---------------------------------------------------------------------------------
def test_layer_without_annotation_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"layer would never be trained or saved" + THREE + "declare `layer: Linear`"
    ):

        class _A(Module):
            layer = linear()


@pytest.mark.parametrize("make", [lambda: [linear()], lambda: {"a": linear()}, lambda: linear().forward])
def test_layers_in_a_class_attribute_are_refused(make: Any) -> None:
    with pytest.raises(ArgumentError, match="never be trained" + THREE):

        class _A(Module):
            parts = make()


def test_parameters_of_torch_in_a_class_attribute_are_refused() -> None:
    with pytest.raises(ArgumentError, match="never be trained" + THREE):

        class _A(Module):
            weight = torch.nn.Parameter(torch.zeros(2))


def test_a_layer_as_a_class_variable_is_refused() -> None:
    with pytest.raises(ArgumentError, match="never be trained" + THREE):

        class _A(Module):
            layer: ClassVar[nn.Linear] = linear()


def test_a_layer_as_a_default_is_refused() -> None:
    with pytest.raises(ArgumentError, match="would share the parameters of layer" + THREE + ".*without a default"):

        class _A(Module):
            layer: nn.Linear = linear()


def test_a_torch_module_as_an_annotation_is_refused() -> None:
    with pytest.raises(ArgumentError, match="net would never be trained" + THREE + ".*TorchModel"):

        class _A(Module):
            net: torch.nn.Linear


def test_a_torch_module_inside_of_an_annotation_is_refused() -> None:
    with pytest.raises(ArgumentError, match="nets would never be trained" + THREE):

        class _A(Module):
            nets: list[torch.nn.Linear] | None


def test_fields_of_a_base_that_is_no_module_are_refused() -> None:
    class Mixin:
        layer: nn.Linear

    with pytest.raises(ArgumentError, match="layer would never be trained" + THREE + ".*Mixin\\(Module\\)"):

        class _A(Mixin, Module):
            pass


def test_constants_without_annotation_are_as_before() -> None:
    class A(Module):
        layer: nn.Linear
        activation = nn.Relu()
        names = ("a", "b")
        table: ClassVar[dict[str, int]] = {"a": 1}

        def forward(self, x: Tensor) -> Tensor:
            return self.activation.forward(self.layer.forward(x))

    assert A(linear()).num_params() == 6


# -- values ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "hide",
    [
        lambda part: {part},
        lambda part: frozenset([part]),
        lambda part: collections.deque([part]),
        lambda part: collections.UserDict(a=part),
        lambda part: {part: 1},
        lambda part: Plain(part),
        lambda part: [Plain([part])],
        lambda part: lambda x: part.forward(x),
        lambda part: part.forward,
        lambda part: functools.partial(part.forward),
        lambda part: map(part.forward, range(2)),
        lambda part: (layer for layer in (part,)),
        lambda part: np.array([part], dtype=object),
        lambda part: torch.nn.Linear(2, 2),
        lambda part: [torch.nn.Linear(2, 2)],
        lambda part: Plain(torch.nn.Linear(2, 2)),
        lambda part: torch.nn.Parameter(torch.zeros(2)),
        lambda part: torch.zeros(2),
    ],
    ids=lambda hide: f"line {hide.__code__.co_firstlineno}",
)
def test_what_the_tree_does_not_reach_is_refused(hide: Any) -> None:
    with pytest.raises(ArgumentError, match="held.* would never be trained or saved" + THREE):
        Holder(hide(linear()))


def test_what_the_tree_reaches_is_as_before() -> None:
    layers = [linear() for _ in range(4)]
    holder = Holder(
        {"a": layers[0], "b": [layers[1], (layers[2], None)], "c": Plain(3), "d": torch.relu, "e": layers[3]}
    )
    assert holder.num_params() == 24
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    assert Holder(Plain(frozen)).num_params() == 0


def test_an_attribute_beside_the_fields_is_refused() -> None:
    class Lazy(Module):
        size: int

        @functools.cached_property
        def layer(self) -> nn.Linear:
            return linear()

        @functools.cached_property
        def double(self) -> int:
            return 2 * self.size

    lazy = Lazy(2)
    assert lazy.double == 4
    assert lazy.num_params() == 0
    assert lazy.layer.num_params() == 6
    with pytest.raises(ArgumentError, match="layer would never be trained" + THREE):
        lazy.num_params()


def test_assignment_in_a_constructor_names_the_annotation() -> None:
    class Old(Module):
        def __init__(self) -> None:
            self.layer = linear()

    with pytest.raises(AttributeError, match="Old has no field layer" + THREE + "declare `layer: Linear`"):
        Old()


@pytest.mark.parametrize("value", [np.zeros(3), 3, "x", None, torch.zeros(3), Tensor.zeros((3,), AD)], ids=str)
def test_a_parameter_that_is_none_is_refused(value: Any) -> None:
    class A(Module):
        weight: Param

    with pytest.raises((DTypeError, ArgumentError), match="A: .*weight.*" + THREE):
        A(value)


def test_a_tensor_that_asks_for_gradients_is_said_to_be_a_constant() -> None:
    leaf = Tensor.zeros((2,), AD).require_grad()
    with pytest.warns(UntrainedWarning, match="held is a constant" + THREE + ".*Param.from_tensor"):
        Holder(leaf)
    with pytest.warns(UntrainedWarning, match=r"held\[1\]\['a'\] is a constant" + THREE):
        Holder([1, {"a": leaf}])


def test_gradients_for_a_module_without_parameters_are_noticed() -> None:
    layer = linear()

    class Outside(Module):
        def forward(self, x: Tensor) -> Tensor:
            return layer.forward(x)

    gradients = Outside().forward(Tensor.ones((1, 2), AD)).sum().backward()
    with pytest.warns(UntrainedWarning, match="gradients of 2 other leaves, and a Outside without parameters"):
        assert len(GradientsParams.from_grads(gradients, Outside())) == 0
    assert len(GradientsParams.from_params(gradients, Outside(), [])) == 0  # for some parameters: no notice


# -- PyTorch's spellings -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "mend"),
    [
        (lambda: nn.Linear(3, 2), r"nn.LinearConfig\(3, 2\).init\(device\)"),  # type: ignore[arg-type]
        (lambda: nn.LayerNorm(8), r"nn.LayerNormConfig\(8\).init\(device\)"),  # type: ignore[call-arg,arg-type]
        (lambda: nn.Embedding(10, 4), r"nn.EmbeddingConfig\(10, 4\).init\(device\)"),  # type: ignore[call-arg,arg-type]
        (lambda: nn.Conv2d(3, 8, 3, padding=1), r"nn.Conv2dConfig\(channels, kernel_size"),  # type: ignore[call-arg,arg-type]
    ],
)
def test_a_layer_called_with_sizes_names_its_configuration(call: Any, mend: str) -> None:
    with pytest.raises(DTypeError, match=THREE + mend):
        call()


def test_every_layer_with_a_configuration_refuses_plain_numbers() -> None:
    configured = [name.removesuffix("Config") for name in nn.__all__ if name.endswith("Config")]
    layers = [
        kind for name in configured if isinstance(kind := getattr(nn, name, None), type) and issubclass(kind, Module)
    ]
    assert len(layers) > 40
    for layer in layers:
        kinds = [str(annotation) for annotation in layer.__annotations__.values()]
        if any("Param" in kind or "Linear" in kind for kind in kinds):
            with pytest.raises(DTypeError, match=f"{layer.__name__}: " + THREE + f"nn.{layer.__name__}Config"):
                layer(3, 2)


def test_print_says_which_fields_hold_one_layer() -> None:
    class Tied(Module):
        first: nn.Linear
        second: nn.Linear

    layer = linear()
    assert str(Tied(layer, layer)).count("(one object: first, second)") == 2
    assert "one object" not in str(Tied(layer, linear()))


def test_a_function_that_is_differentiated_may_build_modules_around_its_arguments() -> None:
    assert grad(lambda x: (Holder(x).held * 2.0).sum())(Tensor.ones((2,), Device.cpu())).into_data().to_vec() == [
        2.0,
        2.0,
    ]
