"""Texts for the members of enums in configurations: every such field of the library, and unknown texts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from burn_torch import Config, ConfigError, nn, optim
from burn_torch.config._containers import UnionKind
from burn_torch.config._kinds import ChoiceKind, Kind
from burn_torch.config._schema import VariantKind, schema_of
from burn_torch.core.faults import Place
from burn_torch.train import metric


def chosen(kind: Kind) -> list[Kind]:
    members = kind.members if isinstance(kind, UnionKind) else [kind]
    return [member for member in members if member.takes_text]


CONFIGS = [value for home in (nn, nn.loss, optim, metric) for value in vars(home).values() if isinstance(value, type)]
FIELDS = {
    f"{config.__name__}.{field.name}": field.kind
    for config in CONFIGS
    if issubclass(config, Config) and not config._info.is_enum
    for field in schema_of(config).fields
    if chosen(field.kind)
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_enum_field_takes_the_names_of_its_members(name: str) -> None:
    kind = FIELDS[name]
    for choice in chosen(kind):
        if isinstance(choice, ChoiceKind):
            texts: dict[str, Any] = dict(choice._by_token)
        else:
            assert isinstance(choice, VariantKind)
            texts = dict(choice.alternatives())
        for token, member in texts.items():
            for text in (token, token.lower(), re.sub(r"(?<=[a-z])(?=[A-Z])", "_", token).lower(), token.upper()):
                place = Place().at("field")
                kept = kind.check(text, place)
                if place.faults:
                    assert place.faults[0].what == "this choice has values, which a text cannot say"
                else:
                    assert kept == member if isinstance(choice, ChoiceKind) else type(kept) is member
        place = Place().at("field")
        kind.check("no such member", place)
        assert all(token in place.faults[0].expected for token in texts)


def test_the_walk_finds_the_fields_of_layers_and_optimizers() -> None:
    assert {"LinearConfig.layout", "Conv2dConfig.padding", "LstmConfig.gate_activation"} <= set(FIELDS)
    assert len(FIELDS) > 40


class Model(Config):
    """A choice whose default is a text, and several choices."""

    activation: nn.ActivationConfig = "leaky_relu"  # type: ignore[assignment]  # a text for a member
    more: tuple[nn.ActivationConfig, ...] = ()


def test_a_text_is_kept_as_the_member_that_it_names() -> None:
    expected = nn.ActivationConfig.LeakyRelu(nn.LeakyReluConfig())
    assert Model().activation == expected
    assert Model(more=["relu", "GELU"]).more == (nn.ActivationConfig.Relu, nn.ActivationConfig.Gelu)  # type: ignore[arg-type]
    assert Model().to_dict() == {"activation": {"LeakyRelu": {"negative_slope": 0.01}}, "more": []}
    assert Model.from_dict(Model().to_dict()) == Model()


def test_unknown_texts_and_choices_with_values_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown tag\n  given: .*'reluu'[\s\S]*Relu, Selu[\s\S]*mean 'Relu'\?"):
        Model(activation="reluu")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"values, which a text cannot say\n.*padding = 'explicit'[\s\S]*top, left"):
        nn.Conv2dConfig((1, 2), (3, 3), padding="explicit")  # type: ignore[arg-type]


def test_a_layer_that_is_made_by_hand_keeps_no_text() -> None:
    with pytest.raises(ConfigError, match=r"Interpolate2d: wrong type\n  given:    mode = 'linear'"):
        nn.Interpolate2d((2, 2), None, "linear", True)  # type: ignore[arg-type]
