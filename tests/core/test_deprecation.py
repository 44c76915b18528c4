"""Deprecations: what is told, how often, to which line; and that none outlives its release."""

from __future__ import annotations

import re
import sys
import types
import warnings
from pathlib import Path

import pytest

import burn_torch
from burn_torch import ArgumentError, Device, Module, Param, Tensor
from burn_torch.core import deprecation
from burn_torch.core.deprecation import (
    BurnTorchDeprecationWarning,
    Deprecation,
    deprecate_names,
    deprecated,
    deprecated_argument,
)

ROOT = Path(__file__).resolve().parents[2]


def a_function():
    @deprecated(since="0.2", removed_in="0.4", instead="new(x)", name="old")
    def function(x):
        """Doubles."""
        return 2 * x

    return function


def test_a_function_works_and_warns_in_three_parts():
    old = a_function()
    with pytest.warns(BurnTorchDeprecationWarning) as notices:
        assert old(3) == 6
    (notice,) = notices
    assert str(notice.message).splitlines() == [
        "old is deprecated since 0.2",
        "  given:    old(...)",
        "  expected: new(x); 0.4 removes old",
        "  mend:     write new(x)",
    ]
    assert notice.filename == __file__
    assert issubclass(BurnTorchDeprecationWarning, DeprecationWarning)
    assert (old.__name__, old.__doc__) == ("function", "Doubles.")


def test_a_line_is_warned_once_and_another_line_again():
    old = a_function()
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        for _ in range(3):
            old(1)
        old(2)
    first, second = [notice.lineno for notice in notices]
    assert second == first + 1


def test_an_error_is_raised_each_time():
    old = a_function()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(BurnTorchDeprecationWarning, match="old is deprecated"):
                old(1)


def test_new_filters_are_reported_again():
    old = a_function()
    counts = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as notices:
            warnings.simplefilter("always")
            old(1)
        counts.append(len(notices))
    assert counts == [1, 1]


def test_a_class_warns_of_instances_and_subclasses():
    class New:
        def __init__(self, size: int = 0) -> None:
            self.size = size

    @deprecated(since="0.2", removed_in="0.4", instead="New", name="Old")
    class Old(New):
        pass

    with pytest.warns(BurnTorchDeprecationWarning, match=r"given: +Old\(\.\.\.\)"):
        assert Old(3).size == 3
    with pytest.warns(BurnTorchDeprecationWarning, match=r"given: +class Own\(Old\)"):

        class Own(Old):
            pass

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(Own(2), Old)
        assert New(1).size == 1


def test_a_module_of_burn_torch_can_be_deprecated():
    @deprecated(since="0.2", removed_in="0.4", instead="Scale", name="Grow")
    class Grow(Module):
        factor: Param

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor.val()

    device = Device.cpu()
    with pytest.warns(BurnTorchDeprecationWarning, match="Grow is deprecated"):
        layer = Grow(Param.from_data([2.0], device))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy = layer.map_params(lambda param: param)  # copies that the library makes are not the user's
        assert copy.forward(Tensor.from_data([3.0], device)).into_data().values.tolist() == [6.0]


def test_an_argument_goes_on_under_its_new_name():
    @deprecated_argument("axis", since="0.2", removed_in="0.4", new="dim")
    def total(x, dim=0):
        return (x, dim)

    with pytest.warns(BurnTorchDeprecationWarning, match=r"given: +axis=1\n  expected: dim=\.\.\.; 0\.4 removes"):
        assert total(5, axis=1) == (5, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert total(5, 2) == (5, 2)
        assert total(5, dim=3) == (5, 3)


@pytest.mark.parametrize("call", [lambda f: f(5, 1, axis=2), lambda f: f(5, dim=1, axis=2)])
def test_both_names_of_an_argument_are_refused(call):
    @deprecated_argument("axis", since="0.2", removed_in="0.4", new="dim")
    def total(x, dim=0):
        return (x, dim)

    with (
        pytest.warns(BurnTorchDeprecationWarning, match="axis"),
        pytest.raises(ArgumentError, match=r"axis and dim are one parameter\n  given: +axis=2 beside dim\n"),
    ):
        call(total)


def test_an_argument_that_means_nothing_now_is_dropped():
    @deprecated_argument("fast", since="0.2", removed_in="0.4", instead="nothing: it always is")
    def run(x):
        return x

    with pytest.warns(BurnTorchDeprecationWarning, match="mend: +write nothing: it always is"):
        assert run(1, fast=True) == 1


def test_old_names_of_a_module_lead_to_the_new_ones(monkeypatch):
    module = types.ModuleType("a_module_with_old_names")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.__dict__["New"] = 7
    module.__dict__["__getattr__"] = lambda name: f"hint for {name}"
    names = {"Old": "New", "Moved": "burn_torch.core.errors:ShapeError"}
    deprecate_names(module.__dict__, names, since="0.2", removed_in="0.4")
    with pytest.warns(BurnTorchDeprecationWarning, match=r"mend: +write a_module_with_old_names\.New"):
        assert module.Old == 7
    with pytest.warns(BurnTorchDeprecationWarning, match=r"mend: +write burn_torch\.core\.errors\.ShapeError"):
        from a_module_with_old_names import Moved  # type: ignore[import-not-found]
    assert Moved is burn_torch.ShapeError
    assert module.Other == "hint for Other"
    del module.__dict__["__getattr__"]
    deprecate_names(module.__dict__, {}, since="0.2", removed_in="0.4")
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        module.Other  # noqa: B018


@pytest.mark.parametrize(
    ("since", "removed_in", "complaint"),
    [
        ("0.2", "0.3", r'removed too early\n.*\n.*\n  mend: +removed_in="0\.4"'),
        ("0.9", "0.10", "removed too early"),
        ("1.2", "1.3", "removed too early"),
        ("1.2", "1.4", r'removed too early\n.*\n.*\n  mend: +removed_in="2\.0"'),
        ("1.2", "0.9", "removed too early"),
        ("2", "4", r"this is no release\n  given: +'2'"),
        ("next", "later", "this is no release"),
    ],
)
def test_a_period_that_is_too_short_is_refused(since, removed_in, complaint):
    with pytest.raises(ArgumentError, match=complaint):
        Deprecation("old", since, removed_in, "new")


@pytest.mark.parametrize(("since", "removed_in"), [("0.2", "0.4"), ("0.9", "0.11"), ("0.9", "1.0"), ("1.7", "2.0")])
def test_a_period_of_the_policy_is_taken(since, removed_in):
    Deprecation("old", since, removed_in, "new")


def overdue(source: str, version: str) -> list[str]:
    """The releases of a source in which something was to be gone by now."""
    now = tuple(map(int, version.split(".")[:2]))
    return [text for text in re.findall(r'removed_in="([\d.]+)"', source) if tuple(map(int, text.split("."))) <= now]


def test_no_deprecation_outlives_its_release():
    files = [path for path in (ROOT / "burn_torch").rglob("*.py") if path != Path(deprecation.__file__)]
    late = {str(path): overdue(path.read_text(encoding="utf-8"), burn_torch.__version__) for path in files}
    assert {path: releases for path, releases in late.items() if releases} == {}
    assert overdue('@deprecated(since="0.2", removed_in="0.4")', "0.4.0") == ["0.4"]
    assert overdue('@deprecated(since="0.2", removed_in="0.4")', "0.3.9") == []
