"""Constructors refuse arguments that do not fit, with an error of three parts: one call of each family."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import BurnTorchError, Device, Module, Tensor, compile, grad, nn, optim, train
from burn_torch.data import (
    DataLoader,
    DataLoaderBuilder,
    InMemDataset,
    MapperDataset,
    PartialDataset,
    SelectionDataset,
    WindowsDataset,
)
from burn_torch.monitor import EventLog, is_alive
from burn_torch.record import NamedMpkFileRecorder, SafetensorsFormat
from burn_torch.record.stores import KeyRemapper, PathFilter, SafetensorsStore

MODEL = nn.LinearConfig(2, 2).init(Device.cpu().autodiff())


class Batches:
    def batch(self, items: list[Any], device: Any) -> Any:
        return items


@pytest.mark.parametrize(
    "call",
    [
        lambda: train.SupervisedTraining(3, [], []),
        lambda: train.SupervisedTraining("", [], []),
        lambda: train.SupervisedTraining("a", [], []).metrics(train.LossMetric),
        lambda: train.SupervisedTraining("a", [], []).renderer(object()),
        lambda: train.SupervisedTraining("a", [], []).early_stopping("loss"),
        lambda: train.SupervisedTraining("a", [], []).time_limit("1h"),
        lambda: train.SupervisedTraining("a", [], []).seed(1.5),
        lambda: train.SupervisedTraining("a", [], []).compile("yes"),
        lambda: train.LearnerBuilder("a").devices("cpu"),
        lambda: train.EvaluatorBuilder("a").metrics("loss"),
        lambda: train.KeepLastNCheckpoints("2"),
        lambda: train.NoImprovementSince(2.5),
        lambda: train.TopKAccuracyMetric("5"),
        lambda: train.PrecisionMetric("macro"),
        lambda: train.PlainRenderer("out.txt"),
        lambda: train.FileCheckpointer(None),
        lambda: train.TorchModel(MODEL),
        lambda: MapperDataset([1], 3),
        lambda: MapperDataset(3, str),
        lambda: PartialDataset([1, 2], "0", 1),
        lambda: InMemDataset(torch.tensor(3.0)),
        lambda: InMemDataset.from_csv(None),
        lambda: DataLoader(None, Batches(), batch_size=1),
        lambda: DataLoader([1, 2], Batches(), batch_size=1).epoch("1"),
        lambda: DataLoaderBuilder(3),
        lambda: optim.ConstantLr("0.1"),
        lambda: optim.ParamGroup.from_paths(["a", 3]),
        lambda: optim.GradientsAccumulator().accumulate(None, None),
        lambda: optim.AdamConfig().init().load_record({}),
        lambda: optim.AdamConfig().init().step(0.1, None, optim.GradientsParams()),
        lambda: optim.StepLrSchedulerConfig(0.1, 2).init().lr_at(None),
        lambda: grad(3),
        lambda: grad(lambda x: x, argnums="0"),
        lambda: compile(lambda x: x, donate=None),
        lambda: compile(lambda x: x, max_programs=2.5),
        lambda: SafetensorsStore.from_file(None),
        lambda: SafetensorsStore.from_file("a").with_regex(None),
        lambda: PathFilter().with_full_paths(None),
        lambda: KeyRemapper().add_pattern(None, "a"),
        lambda: SafetensorsFormat().save(None, "a"),
        lambda: NamedMpkFileRecorder().record(MODEL, "a"),
        lambda: EventLog(None),
        lambda: is_alive(None),
        lambda: Device("cpu"),
    ],
)
def test_it_is_reported_where_it_is_given(call: Callable[[], Any]) -> None:
    with pytest.raises(BurnTorchError, match=r"given: [\s\S]*expected: [\s\S]*mend: "):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    assert train.KeepLastNCheckpoints(np.int64(3)).num_keep == 3  # type: ignore[arg-type]
    assert optim.ConstantLr(np.float32(0.5)).lr == 0.5  # type: ignore[arg-type]
    assert type(optim.ConstantLr(np.float32(0.5)).lr_at(0)) is float  # type: ignore[arg-type]  # rows take no other
    assert train.CheckpointEvery(steps=np.int64(3)).steps == 3  # type: ignore[arg-type]


def test_a_run_takes_its_counts_from_numpy(tmp_path: Path) -> None:
    device = MODEL.weight.device

    class Net(Module):
        linear: nn.Linear

        def train_step(self, x: Tensor) -> train.TrainOutput[train.LossInput]:
            loss = self.linear.forward(x).square().mean()
            return train.TrainOutput.new(self, loss.backward(), train.LossInput(loss, 1))

    data = [Tensor.ones((1, 2), device) for _ in range(4)]
    run = train.SupervisedTraining(tmp_path / "run", data, None).renderer(train.SilentRenderer())
    run = (
        run.seed(np.int64(2**62 + 3))
        .num_epochs(np.int64(2))
        .grads_accumulation(np.int32(2))
        .checkpoint_every(steps=np.int64(3))
    )  # type: ignore[arg-type]
    result = run.launch(train.Learner(Net(MODEL), optim.SgdConfig().init(), np.float32(0.5)))
    assert result.status == "completed"
    assert len(list((tmp_path / "run" / "checkpoint").iterdir())) > 1


@pytest.mark.parametrize("positions", [np.array([True, False, True]), np.array([0.5, 1.5]), [2**70]])
def test_a_selection_takes_no_mask_and_no_floats_for_positions(positions: Any) -> None:
    with pytest.raises(BurnTorchError, match=r"(?s)a selection must hold positions.*np\.flatnonzero"):
        SelectionDataset([1, 2, 3], positions)


def test_small_counts_of_numpy_do_not_overflow_in_data_and_padding() -> None:
    class Whole:
        def batch(self, items: Any, device: Any) -> Any:
            return items

    few: Any = np.uint8(150)
    data = InMemDataset(list(range(400)))
    loader = DataLoader(data, Whole(), batch_size=few)
    assert [items[0] for items in loader] == [0, 150, 300]  # 2 * 150 is 44 in uint8
    assert WindowsDataset(data, few)[250][-1] == 399
    assert PartialDataset(data, few, 400)[249] == 399
    assert [len(part) for part in PartialDataset.split_chunks(data, np.uint8(2), few)] == [300, 100]  # type: ignore[arg-type]
    device = Device.cpu()
    assert Tensor.ones((2, 2), device).pad((np.int64(1), np.int64(2), 0, 0), 0.0).shape == (2, 5)  # type: ignore[arg-type]
    assert nn.generate_padding_mask(0, [[1, 2], [3]], np.int64(1), device).tensor.shape == (2, 1)  # type: ignore[arg-type]
