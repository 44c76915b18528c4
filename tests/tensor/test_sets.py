"""unique, bincount, searchsorted, quantile, index_put, where, ... against torch and numpy, on both leaves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import DType, Tensor
from burn_torch.core.errors import ArgumentError, BoundsError, BurnTorchError, DTypeError, ShapeError
from burn_torch.tensor import linalg, stats
from tests.tensor.leaves import LEAVES

nan, inf = math.nan, math.inf
RANDOM = np.random.default_rng(7)


def on(leaf: str, values: Any) -> Tensor:
    return Tensor.from_data(np.asarray(values), LEAVES[leaf]())


def same(ours: Tensor, theirs: Any) -> None:
    expected = theirs.numpy() if isinstance(theirs, torch.Tensor) else np.asarray(theirs)
    actual = np.asarray(ours)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("leaf", LEAVES)
def test_unique_of_all_elements(leaf: str) -> None:
    for values in (
        RANDOM.integers(0, 4, (3, 4)), np.array([1.0, -inf, 1.0, inf]), np.zeros(0), np.array([True, False, True]),
        np.array(3.0), RANDOM.integers(0, 3, 6).astype(np.uint16),
    ):  # fmt: skip
        ours = on(leaf, values).unique_with_counts()
        for y, z in zip(
            ours, np.unique(values, return_index=True, return_inverse=True, return_counts=True), strict=True
        ):
            same(y, z.reshape(values.shape) if y is ours.inverse else z)
        same(on(leaf, values).unique(), ours.values.into_data().array)
    ours = on(leaf, [nan, 1.0, nan]).unique_with_counts()  # as torch has it: no NaN is another one
    same(ours.values, [1.0, nan, nan])
    same(ours.first, [1, 0, 2])
    same(ours.counts, [1, 1, 1])


@pytest.mark.parametrize("leaf", LEAVES)
def test_unique_along_an_axis(leaf: str) -> None:
    values = RANDOM.integers(0, 2, (5, 3, 2))
    for dim in (0, 1, -1):
        ours = on(leaf, values).unique_with_counts(dim)
        theirs = torch.unique(torch.from_numpy(values), return_inverse=True, return_counts=True, dim=dim)
        for y, z in zip((ours.values, ours.inverse, ours.counts), theirs, strict=True):
            same(y, z)
    same(on(leaf, [[1.0, nan], [0.0, 2.0], [1.0, nan], [1.0, 2.0]]).unique(0), [[0, 2], [1, 2], [1, nan], [1, nan]])


@pytest.mark.parametrize("leaf", LEAVES)
def test_gradients_of_unique_and_of_weights(leaf: str) -> None:
    device = LEAVES[leaf]().autodiff()
    x = Tensor.from_data(np.array([3.0, 1.0, 3.0]), device).require_grad()
    weights = Tensor.from_data(np.array([1.0, 5.0]), device)
    same(x.grad((x.unique() * weights).sum().backward()), [5.0, 1.0, 0.0])
    counted = Tensor.from_data(np.array([1, 0, 1]), device).bincount(x)
    same(counted, [1.0, 6.0])
    same(x.grad((counted * weights).sum().backward()), [5.0, 1.0, 5.0])
    flat = Tensor.from_data(np.array([2.0, 2.0]), device).require_grad()
    same(flat.grad(flat.std(0).sum().backward()), [0.0, 0.0])
    broken = Tensor.from_data(np.array([nan, inf, 2.0]), device).require_grad()
    same(broken.grad((broken.nan_to_num() * 3.0).sum().backward()), [0.0, 0.0, 3.0])
    y = Tensor.from_data(np.zeros(3), device).require_grad()
    put = x.index_put([Tensor.from_data(np.array([0, 0, -1]), device)], y, accumulate=True)
    same(y.grad((put * Tensor.from_data(np.array([1.0, 2.0, 4.0]), device)).sum().backward()), [1.0, 1.0, 4.0])


@pytest.mark.parametrize("leaf", LEAVES)
def test_bincount_and_searchsorted(leaf: str) -> None:
    numbers, weights = RANDOM.integers(0, 5, 9), RANDOM.normal(size=9)
    same(on(leaf, numbers).bincount(), np.bincount(numbers))
    same(on(leaf, numbers.astype(np.uint8)).bincount(minlength=12), np.bincount(numbers, minlength=12))
    same(on(leaf, numbers).bincount(on(leaf, weights)), np.bincount(numbers, weights))
    same(on(leaf, np.zeros(0, np.int64)).bincount(minlength=2), [0, 0])
    lines = np.sort(RANDOM.normal(size=(2, 6)), 1)
    values = np.concatenate([lines[:, :3], RANDOM.normal(size=(2, 3)), [[nan, inf]] * 2], 1)
    for right in (False, True):
        expected = torch.searchsorted(torch.from_numpy(lines), torch.from_numpy(values), right=right)
        same(on(leaf, lines).searchsorted(on(leaf, values), right), expected)
        side = "right" if right else "left"
        same(on(leaf, lines[0]).searchsorted(on(leaf, values), right), np.searchsorted(lines[0], values, side))
        same(on(leaf, lines[0]).searchsorted(on(leaf, 0.1), right), np.searchsorted(lines[0], 0.1, side))
        same(on(leaf, np.zeros(0)).searchsorted(on(leaf, [1.0]), right), [0])


@pytest.mark.parametrize("leaf", LEAVES)
def test_quantiles_and_deviations(leaf: str) -> None:
    x = RANDOM.normal(size=(3, 7, 2))
    x[0, 1, 0] = nan
    theirs = torch.from_numpy(x)
    for way in ("linear", "lower", "higher", "midpoint", "nearest"):
        for q in (0.0, 0.3, 0.5, 0.77, 1.0):
            same(on(leaf, x).quantile(q, 1, way), torch.quantile(theirs, q, 1, keepdim=True, interpolation=way))
        parts = torch.tensor([0.1, 0.9], dtype=torch.float64)
        expected = torch.quantile(theirs, parts, 1, interpolation=way).movedim(0, 1)
        same(stats.quantile(on(leaf, x), [0.1, 0.9], 1, way), expected)
    same(stats.std(on(leaf, x), 1), theirs.std(1, keepdim=True))
    same(stats.std_bias(on(leaf, x), -1), theirs.std(-1, correction=0, keepdim=True))


@pytest.mark.parametrize("leaf", LEAVES)
def test_replacing(leaf: str) -> None:
    z = np.array([nan, inf, -inf, 1.0])
    same(on(leaf, z).nan_to_num(), np.nan_to_num(z))
    same(on(leaf, z).nan_to_num(1.0, 2.0, 3.0), np.nan_to_num(z, nan=1.0, posinf=2.0, neginf=3.0))
    same(on(leaf, [1, 2]).nan_to_num(), [1, 2])
    a = RANDOM.normal(size=(4, 5))
    mask = a > 0
    same(on(leaf, a).where(on(leaf, mask), 0), np.where(mask, a, 0))
    same(on(leaf, a[0]).where(on(leaf, mask), on(leaf, -a)), np.where(mask, a[0], -a))
    for indices in (([0, 2], [1, 1]), ([-1, 0],), ([[0], [1]], [1, 2]), ([0, 0], [1, 1])):
        places = [on(leaf, i) for i in indices]
        values = RANDOM.normal(size=a[tuple(map(np.asarray, indices))].shape)
        added = a.copy()
        np.add.at(added, tuple(map(np.asarray, indices)), values)
        same(on(leaf, a).index_put(places, on(leaf, values), accumulate=True), added)
        put = a.copy()
        put[tuple(map(np.asarray, indices))] = values
        same(on(leaf, a).index_put(places, on(leaf, values)), put)
    same(on(leaf, a).index_put([on(leaf, mask)], 0.0), np.where(mask, 0, a))


@pytest.mark.parametrize("leaf", LEAVES)
def test_constants_and_distances(leaf: str) -> None:
    device = LEAVES[leaf]()
    for start, end, steps in ((0, 1, 5), (3.0, -2.0, 7), (1.0, 1.0, 1), (0.0, 1.0, 0)):
        same(Tensor.linspace(start, end, steps, (device, DType.F64)), np.linspace(start, end, steps))
    assert Tensor.linspace(0, 9, 4, (device, DType.I64)).tolist() == [0, 3, 6, 9]
    for offset in (-9, -2, 0, 1, 9):
        same(Tensor.tril_indices(3, 4, offset, device), torch.tril_indices(3, 4, offset))
        same(Tensor.triu_indices(3, 4, offset, device), torch.triu_indices(3, 4, offset))
    x, y = RANDOM.normal(size=(2, 4, 3)), RANDOM.normal(size=(5, 3))
    for p in (0.0, 0.5, 1.0, 2.0, 3.0, inf):
        same(linalg.cdist(on(leaf, x), on(leaf, y), p), torch.cdist(torch.from_numpy(x), torch.from_numpy(y), p))


REFUSED: list[tuple[Callable[[Tensor], Any], type[BurnTorchError], str]] = [
    (lambda x: x.bincount(), DTypeError, "list of whole numbers"),
    (lambda x: x.int().unsqueeze_dim(0).bincount(), ShapeError, "list of whole numbers"),
    (lambda x: (x.int() - 9).bincount(), BoundsError, "below 0"),
    (lambda x: x.searchsorted(x.int()), DTypeError, "element types differ"),
    (lambda x: x.unsqueeze_dim(0).searchsorted(x), ShapeError, "do not fit the lines"),
    (lambda x: x.quantile(1.5, 0), ArgumentError, "no such quantile"),
    (lambda x: x.quantile(0.5, 0, "cubic"), ArgumentError, "no such quantile"),
    (lambda x: x.int().quantile(0.5, 0), DTypeError, "quantiles are of floats"),
    (lambda x: x.narrow(0, 0, 0).quantile(0.5, 0), ShapeError, "quantiles are of floats"),
    (lambda x: x.index_put([], 0.0), ShapeError, "do not fit the axes"),
    (lambda x: x.index_put([x.int(), x.int()], 0.0), ShapeError, "do not fit the axes"),
    (lambda x: x.index_put([x.int() + 9], 0.0), BoundsError, "out of range"),
    (lambda x: x.index_put([x], 0.0), ShapeError, "do not fit the axes"),
    (lambda x: x.index_put([x.narrow(0, 0, 1).greater(0.0)], 0.0), ShapeError, "do not fit the axes"),
    (lambda x: Tensor.tril_indices(-1, 2, 0, x.device), ShapeError, "no negative sizes"),
    (lambda x: Tensor.linspace(0.0, 1.0, -1, x.device), ArgumentError, "below 0"),
    (lambda x: linalg.cdist(x.unsqueeze_dim(0), x.narrow(0, 0, 2).unsqueeze_dim(0)), ShapeError, "differ in length"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals_have_three_parts(number: int) -> None:
    function, error, words = REFUSED[number]
    with pytest.raises(error, match=f"(?s){words}.*given:.*expected:.*mend:"):
        function(on("torch", [0.0, 1.0, 2.0]))
