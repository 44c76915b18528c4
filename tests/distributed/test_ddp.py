"""Training by several processes against one process with the whole batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch.train import SingleDevice
from tests.distributed import small


def alone(folder: Path, **options: Any) -> dict[str, Any]:
    return small.run({"dir": folder, **options}, SingleDevice())


def require_equal(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """The same losses, metrics and parameters up to the order of sums in float32."""
    assert found["series"].keys() == wanted["series"].keys()
    for name, values in wanted["series"].items():
        np.testing.assert_allclose(found["series"][name], values, rtol=1e-6, atol=1e-6, err_msg=name)
    for name, values in wanted["final"].items():
        np.testing.assert_allclose(found["final"][name], values, rtol=1e-6, atol=1e-6, err_msg=name)
    for path, values in wanted["params"].items():
        np.testing.assert_allclose(found["params"][path], values, rtol=1e-5, atol=1e-6, err_msg=path)


def test_two_processes_train_as_one_does(launch: Callable[..., Any], tmp_path: Path) -> None:
    one, other = launch("training", dir=str(tmp_path / "two")).results()
    require_equal(one, alone(tmp_path / "one"))
    assert one["digest"] == other["digest"]
    assert one["series"] == other["series"]
    names = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "one").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "options"),
    [
        (3, {}),
        (2, {"compiled": False}),
        (2, {"accumulation": 3}),
        (3, {"accumulation": 2, "compiled": False, "sharded": True}),
        (2, {"sharded": True}),
    ],
)
def test_so_do_others(launch: Callable[..., Any], tmp_path: Path, world: int, options: dict[str, Any]) -> None:
    found = launch("training", world=world, dir=str(tmp_path / "many"), **options).results()
    options = {name: value for name, value in options.items() if name != "sharded"}
    require_equal(found[0], alone(tmp_path / "one", **options))
    assert len({one["digest"] for one in found}) == 1
    assert found[0]["states"] == 4
    if "sharded" in options:
        assert sum(one["own"] for one in found) == 4
