"""Settings are set by the paths that they are shown with, and errors of processes keep their own words."""

import io
import json
from typing import Any

import pytest

from burn_torch.cli.failure import report
from burn_torch.cli.recipes.digits import DigitsConfig
from burn_torch.config import apply_overrides
from burn_torch.core.errors import ConfigError, DistributedError, explain


def paths(values: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for name, value in values.items():
        leaves += paths(value, f"{before}{name}.") if isinstance(value, dict) else [(f"{before}{name}", value)]
    return leaves


def test_every_path_of_the_shown_settings_can_be_set_as_it_is_shown():
    config = DigitsConfig()
    shown = paths(json.loads(config.to_json()))
    assert ("optimizer.algorithm.Adam.beta_1", 0.9) in shown
    for path, value in shown:
        text = value if isinstance(value, str) else json.dumps(value)
        assert apply_overrides(config, [f"{path}={text}"]) == config, path
    changed = apply_overrides(config, ["optimizer.algorithm.Adam.beta_1=0.8"])
    assert changed == apply_overrides(config, ["optimizer.algorithm.beta_1=0.8"]) != config


def test_a_field_of_a_field_is_named_where_its_own_name_is_given():
    with pytest.raises(ConfigError, match=r"(?s)unknown field.*given: .*lr = '0.1'.*mend: .*optimizer\.lr"):
        apply_overrides(DigitsConfig(), ["lr=0.1"])


def test_an_error_of_processes_keeps_its_three_parts():
    words = explain("the processes did not come together", given="a", expected="b", mend="c")
    out = io.StringIO()
    assert report(DistributedError(words), debug=False, stream=out) == 1
    assert out.getvalue() == f"error: {words}\n"
