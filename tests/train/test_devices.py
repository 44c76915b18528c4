"""Several devices in one process, against one device with the whole batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from burn_torch import ConfigError, DataError, Device, Tensor
from burn_torch.core.share import Share, shares
from burn_torch.train import MultiDevice, MultiDeviceOptim, SingleDevice
from burn_torch.train.strategies.parts import cut, items_in
from tests.distributed import small
from tests.distributed.test_ddp import require_equal

CPU = Device.cpu()


@pytest.mark.parametrize("optim", list(MultiDeviceOptim))
@pytest.mark.parametrize(
    "options", [{}, pytest.param({"compiled": False, "accumulation": 2}, marks=pytest.mark.slow)], ids=str
)
def test_three_devices_train_as_one_does(tmp_path: Any, optim: MultiDeviceOptim, options: dict[str, Any]) -> None:
    result = small.run({"dir": tmp_path / "many", **options}, MultiDevice([CPU, CPU, CPU], optim))
    require_equal(result, small.run({"dir": tmp_path / "one", **options}, SingleDevice()))
    assert result["states"] == 4


def test_a_run_goes_on_with_other_devices(tmp_path: Any) -> None:
    wanted = small.run({"dir": tmp_path / "whole", "epochs": 2}, SingleDevice())
    small.run({"dir": tmp_path / "parts", "epochs": 1}, MultiDevice([CPU, CPU], "sharded"))
    result = small.run({"dir": tmp_path / "parts", "epochs": 2, "resume": True}, MultiDevice([CPU, CPU, CPU]))
    require_equal(result, wanted)


def test_no_device_and_unknown_optim_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"MultiDevice cannot train so[\s\S]*0 devices"):
        MultiDevice([])
    with pytest.raises(ConfigError, match=r"optim 'nowhere'"):
        MultiDevice([CPU], "nowhere")


def test_a_batch_is_cut_along_the_first_axis_of_its_tensors() -> None:
    batch = {"x": Tensor.from_data(np.arange(10.0).reshape(5, 2), CPU), "names": ("a", "b"), "n": [3]}
    parts = [cut(batch, share) for share in shares(5, 2)]
    assert [part["x"].into_data().array.tolist() for part in parts] == [
        [[0, 1], [2, 3], [4, 5]],
        [[6, 7], [8, 9]],
    ]
    assert parts[0]["names"] == ("a", "b")
    assert parts[1]["n"] == [3]
    stand_in = cut(batch, Share(5, 0, 5))
    assert stand_in["x"].shape == (1, 2)


def test_a_batch_whose_tensors_disagree_is_refused() -> None:
    batch = (Tensor.from_data(np.ones((4, 2)), CPU), Tensor.from_data(np.ones((3, 4)), CPU))
    with pytest.raises(DataError, match=r"a batch cannot be cut into parts[\s\S]*tuple with \(4, 2\), \(3, 4\)"):
        items_in(batch)
    with pytest.raises(DataError, match="dict with no tensor"):
        items_in({"a": 1})


@pytest.mark.parametrize(("total", "parts"), [(8, 3), (2, 3), (0, 2), (7, 1)])
def test_shares_cover_a_batch_in_order(total: int, parts: int) -> None:
    pieces = shares(total, parts)
    assert [i for share in pieces for i in range(share.first, share.first + share.count)] == list(range(total))
    assert max(share.count for share in pieces) - min(share.count for share in pieces) <= 1
