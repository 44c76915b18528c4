"""How modules print: settings of their own, settings that are passed, and values that are shown as they are."""

from __future__ import annotations

import pytest

from burn_torch import ArgumentError, Device, Module, nn
from burn_torch.module import Content, DisplaySettings


class Wide(Module):
    """Prints with ids and four spaces, and so do the modules inside."""

    linear: nn.Linear
    name: str

    def custom_settings(self) -> DisplaySettings:
        return DisplaySettings().with_indentation_size(4).with_show_num_parameters(False)


class Net(Module):
    """Holds one with settings of its own."""

    wide: Wide


def wide() -> Wide:
    return Wide(nn.LinearConfig(2, 3).init(Device.cpu()), "a")


def test_a_module_prints_with_its_own_settings_unless_it_is_told_otherwise() -> None:
    assert str(wide()) == "Wide {\n    linear: Linear {d_input: 2, d_output: 3, bias: true}\n    name: a\n}"
    passed = wide().format(DisplaySettings().with_indentation_size(1))
    assert passed == "Wide {\n linear: Linear {d_input: 2, d_output: 3, bias: true}\n name: a\n}"
    assert str(Net(wide())) == (
        "Net {\n  wide: Wide {\n        linear: Linear {d_input: 2, d_output: 3, bias: true}\n        name: a\n    }\n"
        "  params: 9\n}"
    )
    default = wide().format(DisplaySettings().with_show_num_parameters(True))
    assert default.endswith("params: 9\n}")


def test_settings_inherit_what_others_have_chosen() -> None:
    own = DisplaySettings().with_indentation_size(4).with_show_param_id(True)
    both = own.inherit(DisplaySettings(show_param_id=False, indentation_size=3).level_up())
    assert (both.indentation_size, both.show_param_id, both.level) == (3, True, 2)
    assert own.inherit(DisplaySettings().with_show_param_id(False)).show_param_id is False


class Shown(Module):
    """Shows its attributes as `repr` writes them."""

    name: str

    def custom_content(self, content: Content) -> Content | None:
        return content.add("plain", self.name).add_debug_attribute("debug", self.name).optional()


class Single(Module):
    """Is shown by one value."""

    name: str

    def custom_content(self, content: Content) -> Content:
        return content.add_formatted(self.name)


class Wrong(Module):
    """Adds an attribute beside that value."""

    name: str

    def custom_content(self, content: Content) -> Content:
        return content.add("name", self.name).add_formatted(self.name)


def test_values_are_shown_as_repr_and_as_str() -> None:
    assert str(Shown("x")) == "Shown {plain: x, debug: 'x'}"
    assert str(Single("x")) == "x"
    assert Single("x").format(DisplaySettings().with_show_all_attributes(True)) == "Single {\n  name: x\n}"
    assert Content(DisplaySettings(), "Net").optional() is None
    with pytest.raises(
        ArgumentError, match=r"one value stands for the whole[\s\S]*attributes name[\s\S]*mend: +add the"
    ):
        str(Wrong("x"))
    with pytest.raises(ArgumentError, match=r"Content\.add: one value stands"):
        Content(DisplaySettings(), "Net").add_formatted(1).add("name", 2)
