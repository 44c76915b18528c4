"""A step with a share of a batch draws what a step with the whole batch draws for these items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Distribution, StepScope, Tensor
from burn_torch.core.share import Share, shares
from burn_torch.data import DataLoader
from burn_torch.nn import DropoutConfig, GaussianNoiseConfig, RReluConfig

CPU = Device.cpu().autodiff()
ITEMS = 7


def layers() -> dict[str, Any]:
    dropout, noise, rrelu = DropoutConfig(0.4).init(), GaussianNoiseConfig(1.0).init(), RReluConfig().init()
    return {
        "dropout": dropout.forward,
        "noise": noise.forward,
        "rrelu": lambda x: rrelu.forward(-x),
        "random": lambda x: Tensor.random(x.shape, Distribution.Uniform(0.0, 1.0), CPU),
        "random_like": lambda x: x.random_like(Distribution.Normal(0.0, 1.0)),
        "bernoulli": lambda x: x.random_like(Distribution.Bernoulli(0.5)),
        "categorical": lambda x: x.abs().categorical(2).float(),
    }


@pytest.mark.parametrize("name", layers())
@pytest.mark.parametrize("shape", [(ITEMS, 5), (2 * ITEMS, 3)], ids=str)
def test_parts_draw_what_the_whole_draws(name: str, shape: tuple[int, ...]) -> None:
    layer = layers()[name]
    rows = shape[0] // ITEMS
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)
    with StepScope(9):
        whole = layer(Tensor.from_data(x, CPU)).into_data().array
    parts = []
    for share in shares(ITEMS, 3):
        part = x[share.first * rows : (share.first + share.count) * rows]
        with StepScope(9, share=share):
            parts.append(layer(Tensor.from_data(part, CPU)).into_data().array)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_what_belongs_to_all_items_is_the_same_on_every_share() -> None:
    share = Share(4, 3, ITEMS)
    assert [share.first_element(shape) for shape in [(), (5, 5), (3, 2), (6,), (0, 2)]] == [0, 0, 8, 8, 0]
    x = Tensor.from_data(np.ones((5, 4), np.float32), CPU)
    drawn = []
    for one in (None, Share(0, 4, ITEMS), share):
        with StepScope(9, share=one):
            drawn.append(x.random_like(Distribution.Default).into_data().array)
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])


def test_a_loader_reads_its_part_of_each_batch() -> None:
    class Listing:
        def batch(self, items: list[int], device: Any) -> list[int]:
            return items

    read: list[int] = []

    class Watched(list[int]):
        def __getitem__(self, index: Any) -> Any:
            read.append(index)
            return super().__getitem__(index)

    whole = DataLoader(list(range(10)), Listing(), batch_size=4, shuffle=3)
    parts = [DataLoader(Watched(range(10)), Listing(), batch_size=4, shuffle=3).share(i, 3) for i in range(3)]
    assert [len(part) for part in parts] == [3, 3, 3]
    assert parts[0].num_items() == 10
    first = list(parts[0].epoch(2))
    assert len(read) == sum(map(len, first))
    for number, batch in enumerate(whole.epoch(2)):
        cut = [list(part.epoch(2, number))[0] for part in parts]  # noqa: RUF015  # the first of those left
        counts = [share.count for share in shares(len(batch), 3)]
        assert [item for part, count in zip(cut, counts, strict=True) for item in part[:count]] == batch
        assert all(part == batch[:1] for part, count in zip(cut, counts, strict=True) if not count)
