"""Loaders that are not ours: a run that stopped within an epoch goes on with the items that are left."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from burn_torch.train import Learner, RegressionOutput, SilentRenderer, SupervisedTraining, TorchModel
from burn_torch.train.foreign_loader import ForeignEpochs, digest_of_items


class Augmented(Dataset[Any]):
    """60 items with noise from every generator of the process."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = random.random() + float(np.random.rand()) + float(torch.rand(1))
        return torch.tensor([float(number) + noise * 1e-3]), torch.ones(1)


class Shuffled:
    """A loader with a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __iter__(self) -> Any:
        for number in self.rng.permutation(6):
            yield torch.full((10, 1), float(number)), torch.ones((10, 1))


class Watcher(SilentRenderer):
    def __init__(self, training: Any, stop: int) -> None:
        self.notices: list[str] = []
        self._training, self._stop = training, stop

    def handle(self, event: Any) -> None:
        if type(event).__name__ == "Notice":
            self.notices.append(event.text)
        if type(event).__name__ == "StepDone" and event.iteration == self._stop:
            self._training.interrupter().stop("half-way")


def trained(folder: Any, loader: Any, *, stop: int = 0) -> tuple[list[float], list[Any], list[str]]:
    """The items in the order of training, the parameters, and the notices; stopped after a batch, and resumed."""
    seen: list[float] = []

    def step(net: torch.nn.Module, batch: Any) -> RegressionOutput:
        seen.extend(batch[0].flatten().tolist())
        output = net(batch[0])
        return RegressionOutput(torch.nn.functional.mse_loss(output, batch[1]), output, batch[1])

    def learner() -> Learner[Any]:
        net = torch.nn.Linear(1, 1)
        torch.nn.init.ones_(net.weight)
        torch.nn.init.ones_(net.bias)
        return Learner(TorchModel(net, step), torch.optim.SGD(net.parameters(), lr=1e-5), 1e-5)

    training = SupervisedTraining(folder, loader(), None).num_epochs(2).seed(3).checkpoint_every(steps=1)
    watcher = Watcher(training, stop)
    result = training.renderer(watcher).launch(learner())
    if stop:
        assert result.status == "stopped"
        watcher._stop = 0
        training.interrupter().reset()
        torch.manual_seed(99)  # another process is at another place
        random.seed(99)
        result = training.with_loaders(loader(), None).renderer(watcher).resume().launch(learner())
    return seen, [param.tolist() for param in result.learner.model.module.parameters()], watcher.notices


def of_workers(workers: int, seeded: bool) -> Any:
    def loader() -> Any:
        generator = torch.Generator().manual_seed(4) if seeded else None
        return DataLoader(Augmented(), batch_size=10, shuffle=True, generator=generator, num_workers=workers)

    return loader


@pytest.mark.parametrize(("workers", "seeded"), [(0, False), (0, True), pytest.param(2, False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stop", [3, 8])
def test_a_torch_loader_that_was_stopped_within_an_epoch_goes_on_exactly(tmp_path, workers, seeded, stop):
    loader = of_workers(workers, seeded)
    seen, params, _ = trained(tmp_path / "whole", loader)
    resumed, again, notices = trained(tmp_path / "resumed", loader, stop=stop)
    assert len(seen) == 120
    assert len({int(item) for item in seen[:60]}) == 60
    assert (resumed, again) == (seen, params)
    assert seen[:60] != seen[60:]  # an order of its own for each epoch
    assert all("stopped in epoch" in notice for notice in notices)


@pytest.mark.parametrize("stop", [2, 8])
def test_a_loader_with_a_generator_that_is_used_again_in_the_process_keeps_its_order(tmp_path, stop):
    """A run sets the seed of an epoch; the next run took that one for the seed of the loader's owner."""
    loader = of_workers(0, True)()
    seen, params, _ = trained(tmp_path / "whole", lambda: loader)
    resumed, again, _ = trained(tmp_path / "resumed", lambda: loader, stop=stop)
    assert (resumed, again) == (seen, params)
    loader.generator.manual_seed(5)  # its owner's word counts
    assert trained(tmp_path / "other", lambda: loader)[0] != seen


def test_a_torch_loader_leaves_the_generators_of_the_process_alone(tmp_path):
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    torch.nn.Linear(1, 1)  # as `trained` draws for its module
    wanted = torch.rand(1).item(), np.random.rand(), random.random()
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    trained(tmp_path / "run", of_workers(0, False))
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == wanted


def test_a_loader_of_unknown_order_says_so_when_it_is_resumed_within_an_epoch(tmp_path):
    _, _, notices = trained(tmp_path / "run", Shuffled, stop=2)
    assert any("only the Shuffled knows its order" in notice and "twice" in notice for notice in notices)


def test_items_that_lead_back_to_themselves_have_no_digest():
    """A tree whose nodes know their parent: the walk over it had no end."""
    node: dict[str, Any] = {"value": 1.0, "children": []}
    node["children"].append({"value": 2.0, "parent": node})
    assert digest_of_items([node]) is None
    assert digest_of_items([{"value": 1.0, "children": [np.ones(3), (True, None)]}]) is not None


def test_a_data_set_may_hold_a_loader(tmp_path):
    class Nested(Augmented):
        def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
            (batch,) = ForeignEpochs(DataLoader([float(number)])).batches(1, 0)
            return batch.float(), torch.ones(1)

    seen, _, _ = trained(tmp_path / "run", lambda: DataLoader(Nested(), batch_size=10))
    assert seen == [float(number) for number in range(60)] * 2


def test_other_data_of_the_same_size_is_reported(tmp_path):
    offsets = iter((0.0, 1.0))

    def loader() -> Any:
        offset = next(offsets)
        data = torch.arange(60.0).reshape(60, 1) + offset
        return DataLoader(TensorDataset(data, data), batch_size=10, shuffle=True)

    _, _, notices = trained(tmp_path / "run", loader, stop=2)
    assert any("the training data holds other items than before" in notice for notice in notices)
