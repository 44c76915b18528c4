"""Two processes with a GPU each, over NCCL, against one GPU with the whole batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch.train import SingleDevice
from tests.distributed import small

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")]


@pytest.mark.parametrize(
    "options",
    [{}, {"compiled": False}, {"sharded": True}, {"accumulation": 3}, {"items": 35}, {"items": 35, "sharded": True}],
    ids=str,
)
def test_two_gpus_train_as_one_does(launch: Callable[..., Any], tmp_path: Path, options: dict[str, Any]) -> None:
    results = launch("training", dir=str(tmp_path / "two"), place="cuda:0", **options).results()
    alone = {name: value for name, value in options.items() if name != "sharded"}
    wanted = small.run({"dir": tmp_path / "one", "place": "cuda:0", **alone}, SingleDevice())
    assert results[0]["digest"] == results[1]["digest"]
    assert results[0]["series"] == results[1]["series"]
    for name, values in wanted["series"].items():  # sums in another order, and products in another kernel
        np.testing.assert_allclose(results[0]["series"][name], values, rtol=1e-5, atol=1e-5, err_msg=name)
    for path, values in wanted["params"].items():
        np.testing.assert_allclose(results[0]["params"][path], values, rtol=1e-4, atol=1e-5, err_msg=path)
