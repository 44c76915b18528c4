"""Tests what strategies refuse, in words."""

from __future__ import annotations

import socket
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import burn_torch.distributed as distributed
from burn_torch import (
    ArtifactError,
    ConfigError,
    Device,
    DistributedError,
    DTypeError,
    RecordError,
    ShapeError,
    Tensor,
    ops,
)
from burn_torch.core.dtype import DType
from burn_torch.optim import OptimizerRecord, SgdConfig
from burn_torch.train import (
    Ddp,
    KeepLastNCheckpoints,
    Learner,
    LossMetric,
    MultiDevice,
    Peers,
    SingleDevice,
    TorchModel,
)
from burn_torch.train.checkpoint.store import file_store
from burn_torch.train.strategies import ddp
from burn_torch.train.strategies.checkpoints import shared_store
from burn_torch.train.strategies.parts import map_tensors
from burn_torch.train.strategies.sharding import owners
from tests.distributed import small


def test_an_empty_bucket() -> None:
    with pytest.raises(ConfigError, match=r"Ddp: a bucket must hold at least one byte[\s\S]*bucket_bytes=0"):
        Ddp(bucket_bytes=0)


def test_models_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "gather", lambda value: [value, [*value[:-1], "linear2.bias (9,) f32"]])
    with pytest.raises(ConfigError, match=r"different models[\s\S]*process 1 differs from process 0 in linear2\.bias"):
        ddp._require_alike(small.net())


def test_processes_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    values = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DistributedError, match=r"did not come together[\s\S]*rank 1 of 2 at 127\.0\.0\.1"):
        distributed.init(timeout_s=1.0, join_s=1.0)
    assert not distributed.is_initialized()


def test_metrics_without_a_state() -> None:
    class Plain:
        name = "Plain"

    with pytest.raises(ConfigError, match=r"cannot be measured by several processes[\s\S]*Plain"):
        Peers(0, 2).check([LossMetric(), Plain()])  # type: ignore[list-item]  # the fault under test
    Peers(0, 1).check([Plain()])  # type: ignore[list-item]  # one process needs no state


def test_a_checkpoint_that_a_process_cannot_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = file_store(tmp_path, KeepLastNCheckpoints(1), None, background=False)
    monkeypatch.setattr(distributed, "gather", lambda value: [str(tmp_path / "epoch-1.safetensors"), value])
    with pytest.raises(ArtifactError, match=r"cannot see the checkpoint[\s\S]*epoch-1\.safetensors"):
        shared_store(store, Peers(1, 2)).newest(lambda text: None)
    monkeypatch.setattr(distributed, "gather", lambda value: [None, value])
    assert shared_store(store, Peers(1, 2)).newest(lambda text: None) is None
    assert shared_store(store, Peers()) is store


def test_watching_for_anomalies_where_steps_cannot_be_run_again(tmp_path: Path) -> None:
    training = small.training({"dir": tmp_path / "a"}, MultiDevice([Device.cpu()])).detect_anomaly()
    with pytest.raises(ConfigError, match=r"detect_anomaly with MultiDevice[\s\S]*SingleDevice"):
        training.launch(Learner(small.net(), SgdConfig().init(), 0.1))
    module = torch.nn.Linear(6, 3)
    learner = Learner(TorchModel(module, lambda m, batch: m(batch)), torch.optim.SGD(module.parameters(), lr=0.1), 0.1)
    training = small.training({"dir": tmp_path / "b"}, SingleDevice()).detect_anomaly()
    with pytest.raises(ConfigError, match=r"detect_anomaly watches one process on one device[\s\S]*TorchTraining"):
        training.launch(learner)


def test_rows_of_transfers_and_draws() -> None:
    x = small.Batcher().batch(small.items(2), Device.cpu()).inputs
    with pytest.raises(DTypeError, match="mean_start: xs are none, or f64 and narrower floats together"):
        ops.mean_start(1.0, x, x.cast(DType.F64), world=1)
    with pytest.raises(ShapeError, match=r"mean_start: weight has the shape \(2, 6\)"):
        ops.mean_start(x, x, world=1)
    with pytest.raises(ShapeError, match="mean_wait: this is no result of mean_start"):
        ops.mean_wait(x, world=1)
    with pytest.raises(ShapeError, match="all_reduce: a world of 0"):
        ops.all_reduce(x, world=0)
    with pytest.raises(ShapeError, match="dropout: start is -1"):
        ops.dropout(x, 0.5, 1, 2, start=-1)


def test_torch_states_that_cannot_be_kept() -> None:
    module = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=r"cannot be trained where it is[\s\S]*without parameters"):
        TorchModel(torch.nn.ReLU()).device()
    learner: Learner[Any] = Learner(module, torch.optim.SGD(module.parameters(), lr=0.1), 0.1)
    with pytest.raises(RecordError, match=r"belongs to another optimizer[\s\S]*torch\.SGD"):
        learner.load_optim(OptimizerRecord("Adam", {}))
    learner.optim.optimizer.state[module.weight]["odd"] = ["a list"]
    with pytest.raises(ConfigError, match=r"cannot be saved in a checkpoint[\s\S]*torch\.SGD: odd, list"):
        learner.optim.to_record()


def test_owners_have_as_much_as_they_can() -> None:
    sizes = [100, 1, 60, 50, 40, 3]
    owner_of = owners(sizes, 3)
    loads = [sum(size for size, owner in zip(sizes, owner_of, strict=True) if owner == i) for i in range(3)]
    assert owner_of == owners(sizes, 3)
    assert max(loads) == 100
    np.testing.assert_array_equal(sorted(loads), [64, 90, 100])


def test_a_batch_in_a_defaultdict_keeps_its_factory() -> None:
    """`doctor` and a cut raised "first argument must be callable or None"."""
    batch = defaultdict(list, images=Tensor.ones([2], Device.cpu()))
    wide = map_tensors(batch, lambda x: x.cast(DType.F64))
    assert wide["images"].dtype is DType.F64
    assert wide["labels"] == []
    assert batch["images"].dtype is DType.F32
