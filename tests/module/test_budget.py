"""Models that are built from settings of strangers: elements are counted before anything is made."""

import time

import pytest

from burn_torch import ConfigError, Device
from burn_torch.module.budget import bounded_elements
from burn_torch.nn import BatchNormConfig, LinearConfig

MATCH = (
    r"describe another model than the record\n  given:    x: more than 1,000 elements\n  expected: y\n  mend:     take"
)


@pytest.mark.parametrize("config", [BatchNormConfig(10**12), LinearConfig(10**9, 10**9), LinearConfig(2, 10**12)])
def test_a_layer_of_terabytes_is_refused_before_it_is_made(config):
    with pytest.raises(ConfigError, match=MATCH), bounded_elements(1000, "x", "y"):
        config.init(Device.cpu())


def test_ten_million_layers_are_refused_at_once():
    start = time.process_time()
    with pytest.raises(ConfigError, match=MATCH), bounded_elements(1000, "x", "y"):
        [LinearConfig(1, 1).init(Device.cpu()) for _ in range(10**7)]
    assert time.process_time() - start < 1


def test_what_fits_is_made_and_nothing_is_counted_behind_it():
    with bounded_elements(1000, "x", "y"):
        LinearConfig(10, 20).init(Device.cpu())
    LinearConfig(100, 200).init(Device.cpu())
