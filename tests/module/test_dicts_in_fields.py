"""Dicts in fields of modules do not change, so a compiled step never computes with what one no longer holds."""

import copy
import dataclasses
import pickle
from typing import Any

import pytest

import burn_torch
from burn_torch import ArgumentError, Device, Module, Tensor
from burn_torch.nn import Linear, LinearConfig

CPU = Device.cpu()


class Weighted(Module):
    linear: Linear
    settings: dict[str, Any]

    def forward(self, x: Tensor) -> Tensor:
        return self.linear.forward(x) * 0 + self.settings["w"] + self.settings["inner"]["rates"][0]


def weighted() -> Weighted:
    return Weighted(LinearConfig(1, 1).init(CPU), {"w": 1.0, "inner": {"rates": [2.0]}})


CHANGES = {
    "an entry": lambda d: d.__setitem__("w", 5.0),
    "an entry further in": lambda d: d["inner"].__setitem__("rates", [5.0]),
    "update": lambda d: d.update(w=5.0),
    "setdefault": lambda d: d.setdefault("v", 5.0),
    "pop": lambda d: d.pop("w"),
    "popitem": lambda d: d.popitem(),
    "clear": lambda d: d.clear(),
    "del": lambda d: d.__delitem__("w"),
    "or": lambda d: d.__ior__({"w": 5.0}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("returned", [False, True])
def test_a_change_of_a_dict_in_a_field_is_refused_in_three_parts(change, returned):
    model, x = weighted(), Tensor.from_floats([[1.0]], CPU)
    compiled = burn_torch.compile(lambda model, x: (model, model.forward(x)))
    again, y = compiled(model, x)
    assert y.item() == 3.0
    with pytest.raises(ArgumentError, match=r"(?s)cannot be changed.*given: .*expected: .*values.*mend: .*replace\("):
        change((again if returned else model).settings)
    assert compiled(again, x)[1].item() == 3.0


def test_a_module_with_another_dict_is_traced_again_and_the_given_dict_is_a_copy():
    settings = {"w": 1.0, "inner": {"rates": [2.0]}}
    model, x = Weighted(LinearConfig(1, 1).init(CPU), settings), Tensor.from_floats([[1.0]], CPU)
    compiled = burn_torch.compile(lambda model, x: model.forward(x))
    assert compiled(model, x).item() == 3.0
    settings["w"] = 5.0
    assert compiled(model, x).item() == model.forward(x).item() == 3.0
    other = dataclasses.replace(model, settings={**model.settings, "w": 5.0})
    assert compiled(other, x).item() == 7.0
    assert compiled.traces == 2


def test_copies_pickles_and_lists_of_such_dicts():
    model = weighted()
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert twin.settings == model.settings
        with pytest.raises(ArgumentError, match="cannot be changed"):
            twin.settings["w"] = 2.0
    plain = model.settings.copy()
    plain["w"] = 2.0
    assert model.settings | {"w": 2.0} == plain
    assert model.settings["inner"]["rates"] == (2.0,)
    assert type(model.to_device(CPU.autodiff()).settings) is type(model.settings)
