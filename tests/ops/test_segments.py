"""Segment rows, sparse products and products of groups beside loops in float64: drawn offsets with empty segments, one
segment, everything in one, gaps and nothing at all."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Tensor, compile, ops, vmap
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, BoundsError, ConfigError, ShapeError
from burn_torch.tensor import segments

CPU, TAPE, NUMPY = Device.cpu(), Device.cpu().autodiff(), Device.ndarray()
DEVICES = [CPU, NUMPY, CPU.fused()]
REDUCTIONS: dict[str, tuple[Callable[..., Any], float]] = {
    "sum": (np.sum, 0.0),
    "mean": (np.mean, 0.0),
    "prod": (np.prod, 1.0),
    "max": (np.max, -np.inf),
    "min": (np.min, np.inf),
}


def draw_offsets(seed: np.random.Generator, groups: int, length: int, kind: str = "any") -> np.ndarray:
    """Offsets of a kind: with gaps at both ends, all to one, whole."""
    if kind == "one":
        at = int(seed.integers(0, groups))
        return np.array([0] * (at + 1) + [length] * (groups - at))
    ends = np.sort(seed.integers(0, length + 1, groups + 1))
    if kind == "whole":
        ends[0], ends[-1] = 0, length
    return ends


def tensor(x: np.ndarray, device: Device = CPU) -> Tensor:
    return Tensor.from_data(np.ascontiguousarray(x), device)


def drawn_cases(seed: np.random.Generator, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    cases = []
    for i in range(count):
        groups, length = int(seed.integers(1, 7)), int(seed.integers(0, 23))
        features = [(), (3,), (2, 2), (0,)][int(seed.integers(0, 4))]
        cases.append(
            (seed.normal(size=(length, *features)), draw_offsets(seed, groups, length, ["any", "one", "whole"][i % 3]))
        )
    return cases


def reduce_by_loop(x: np.ndarray, offsets: np.ndarray, reduction: str) -> np.ndarray:
    function, neutral = REDUCTIONS[reduction]
    parts = [x[a:b] for a, b in itertools.pairwise(offsets)]
    return np.stack([function(p, axis=0) if len(p) else np.full(x.shape[1:], neutral) for p in parts])


# -- values -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", DEVICES, ids=["torch", "numpy", "fused"])
@pytest.mark.parametrize("reduction", list(REDUCTIONS))
def test_reductions_are_those_of_a_loop(reduction: str, device: Device, seed: np.random.Generator) -> None:
    function = getattr(segments, reduction)
    for x, offsets in drawn_cases(seed, 9):
        expected = reduce_by_loop(x, offsets, reduction)
        np.testing.assert_allclose(np.asarray(function(tensor(x, device), tensor(offsets, device))), expected, 1e-12)
        inside = x[offsets[0] : offsets[-1]]
        ids = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        order = seed.permutation(len(ids))
        by_ids = function(
            tensor(inside[order], device), ids=tensor(ids[order].astype(np.int32), device), count=len(offsets) - 1
        )
        np.testing.assert_allclose(np.asarray(by_ids), expected, 1e-12)


@pytest.mark.parametrize("device", DEVICES, ids=["torch", "numpy", "fused"])
def test_softmax_expand_and_ids_are_those_of_a_loop(device: Device, seed: np.random.Generator) -> None:
    for x, offsets in drawn_cases(seed, 9):
        expected, spread = np.zeros_like(x), np.zeros_like(x)
        per_group = seed.normal(size=(len(offsets) - 1, *x.shape[1:]))
        for g, (a, b) in enumerate(itertools.pairwise(offsets)):
            e = np.exp(x[a:b] - x[a:b].max(0, initial=-np.inf))
            expected[a:b], spread[a:b] = e / e.sum(0), per_group[g]
        at = tensor(offsets, device)
        np.testing.assert_allclose(np.asarray(segments.softmax(tensor(x, device), at)), expected, 1e-12)
        np.testing.assert_array_equal(np.asarray(segments.expand(tensor(per_group, device), at, len(x))), spread)
        ids = np.searchsorted(offsets, np.arange(len(x)), side="right") - 1
        np.testing.assert_array_equal(np.asarray(segments.ids(at, len(x))), ids)
        inside = slice(offsets[0], offsets[-1])
        by_ids = segments.softmax(tensor(x[inside], device), ids=tensor(ids[inside], device), count=len(offsets) - 1)
        np.testing.assert_allclose(np.asarray(by_ids), expected[inside], 1e-12)


@pytest.mark.parametrize("dtype", [DType.I64, DType.I32, DType.U8, DType.U64])
@pytest.mark.parametrize("device", [CPU, NUMPY], ids=["torch", "numpy"])
def test_integers_are_reduced_exactly(dtype: DType, device: Device) -> None:
    x = tensor(np.array([3, 7, 5, 2]), device).cast(dtype)
    at = tensor(np.array([0, 3, 3, 4]), device)
    ends = dtype.iinfo()
    for name, expected in {
        "sum": [15, 0, 2],
        "prod": [105, 1, 2],
        "max": [7, ends.min, 2],
        "min": [3, ends.max, 2],
    }.items():
        y = getattr(segments, name)(x, at)
        assert y.dtype is dtype
        assert np.asarray(y).tolist() == expected


def test_long_sums_of_narrow_types_keep_their_digits() -> None:
    x = np.full((3000, 1), 0.1)
    for dtype, allowed in ((DType.F32, 1e-6), (DType.BF16, 1e-2)):
        narrow = tensor(x).cast(dtype)
        exact = float(np.asarray(narrow.cast(DType.F64)).sum())
        total = segments.sum(narrow, tensor(np.array([0, 3000])))
        assert total.dtype is dtype
        assert abs(total.cast(DType.F64).into_scalar() / exact - 1) < allowed


def test_nan_is_the_largest_and_the_least_and_reaches_the_gradient() -> None:
    x = Tensor.from_data(np.array([1.0, np.nan, 2.0]), TAPE).require_grad()
    y = segments.max(x, Tensor.from_ints([0, 2, 3], TAPE))
    assert np.isnan(np.asarray(y)[0])
    gradient = np.asarray(x.grad(y.sum().backward()))
    assert np.isnan(gradient[:2]).all()
    assert gradient[2] == 1.0


# -- gradients --------------------------------------------------------------------------------------------
def test_gradients_are_those_of_torch_on_drawn_segments(seed: np.random.Generator) -> None:
    for x, offsets in drawn_cases(seed, 12):
        x = np.sign(x) * (0.3 + np.abs(x))
        ends = list(itertools.pairwise(offsets))
        for name in (*REDUCTIONS, "softmax"):
            theirs = torch.from_numpy(x.copy()).requires_grad_()
            parts = [theirs[a:b] for a, b in ends]
            ours = Tensor.from_data(x, TAPE).require_grad()
            y = getattr(segments, name)(ours, Tensor.from_ints(offsets.tolist(), TAPE))
            weights = seed.normal(size=y.shape)
            if name == "softmax":
                full = [p.softmax(0) for p in parts]
                loss = sum(
                    (((p * torch.from_numpy(weights[a:b])).sum()) for p, (a, b) in zip(full, ends, strict=True)),
                    start=torch.zeros(()),
                )
            else:
                reduce = {"max": torch.amax, "min": torch.amin}.get(name, getattr(torch, name))
                loss = torch.zeros((), dtype=torch.float64)
                for g, part in enumerate(parts):
                    if len(part):
                        loss = loss + (reduce(part, 0) * torch.from_numpy(np.asarray(weights[g]))).sum()
            expected = torch.autograd.grad(loss, theirs, allow_unused=True)[0] if loss.requires_grad else None
            filled = np.isfinite(np.asarray(y))
            grads = (
                (
                    y.mask_fill(Tensor.from_bool(~filled, TAPE), 0.0)
                    * Tensor.from_data(np.where(filled, weights, 0.0), TAPE)
                )
                .sum()
                .backward()
            )
            actual = ours.grad(grads)
            expected_array = np.zeros_like(x) if expected is None else expected.numpy()
            np.testing.assert_allclose(np.asarray(actual), expected_array, 1e-10, 1e-12, err_msg=f"{name} {offsets}")


# -- doors ------------------------------------------------------------------------------------------------
def test_rows_of_many_samples_are_those_of_each(seed: np.random.Generator) -> None:
    n, groups, length = 3, 4, 7
    x = seed.normal(size=(n, length, 2))
    table, weight = seed.normal(size=(n, groups, 2)), seed.normal(size=(n, groups, 2, 3))
    ends = np.stack([draw_offsets(seed, groups, length, kind) for kind in ("any", "one", "whole")])
    rows: list[tuple[Callable[..., Tensor], list[np.ndarray]]] = [
        *((lambda x, o, r=r: ops.segment_reduce(x, o, reduction=r), [x, ends]) for r in REDUCTIONS),
        (lambda x, o: ops.segment_softmax(x, o), [x, ends]),
        (lambda x, o: ops.segment_expand(x, o, length=length), [table, ends]),
        (lambda o: ops.segment_ids(o, length=length), [ends]),
        (lambda x, w, o: ops.grouped_matmul(x, w, o), [x, weight, ends]),
        (lambda x, y, o: ops.grouped_outer(x, y, o), [x, x[..., :1], ends]),
    ]
    for function, inputs in rows:
        for shared in range(1 << len(inputs)):
            dims = tuple(None if shared >> i & 1 else 0 for i in range(len(inputs)))
            if not any(dim == 0 for dim in dims):
                continue
            operands = [a[0] if dim is None else a for a, dim in zip(inputs, dims, strict=True)]
            each = [
                np.asarray(
                    function(*(tensor(a if dim is None else a[i]) for a, dim in zip(operands, dims, strict=True)))
                )
                for i in range(n)
            ]
            many = vmap(function, dims)(*map(tensor, operands))
            np.testing.assert_allclose(np.asarray(many), np.stack(each), 1e-12, err_msg=f"{dims}")


def test_a_compiled_step_gives_the_same_bits(seed: np.random.Generator) -> None:
    x, weight, ends = seed.normal(size=(9, 4)), seed.normal(size=(3, 4, 2)), draw_offsets(seed, 3, 9)

    def step(x: Tensor, weight: Tensor, offsets: Tensor) -> tuple[Tensor, ...]:
        weights = segments.softmax(x[:, 0], offsets).unsqueeze_dim(1)
        y = segments.matmul(x * weights, weight, offsets)
        return segments.sum(y, offsets), segments.max(y, offsets), segments.mean(y, offsets)

    tensors = [tensor(a) for a in (x, weight, ends)]
    for eager, compiled in zip(step(*tensors), compile(step)(*tensors), strict=True):
        np.testing.assert_array_equal(np.asarray(eager), np.asarray(compiled))


# -- products ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", DEVICES, ids=["torch", "numpy", "fused"])
def test_products_of_groups_are_those_of_a_loop(device: Device, seed: np.random.Generator) -> None:
    for kind in ("any", "one", "whole", "any"):
        rows, groups, d_in, d_out = (int(n) for n in seed.integers(1, 9, 4))
        ends = draw_offsets(seed, groups, rows, kind)
        x, w, g = (
            seed.normal(size=(rows, d_in)),
            seed.normal(size=(groups, d_in, d_out)),
            seed.normal(size=(rows, d_out)),
        )
        expected, outer = np.zeros((rows, d_out)), np.zeros_like(w)
        for i, (a, b) in enumerate(itertools.pairwise(ends)):
            expected[a:b], outer[i] = x[a:b] @ w[i], x[a:b].T @ g[a:b]
        at = tensor(ends, device)
        np.testing.assert_allclose(
            np.asarray(segments.matmul(tensor(x, device), tensor(w, device), at)), expected, 1e-10, 1e-12
        )
        np.testing.assert_allclose(
            np.asarray(segments.outer(tensor(x, device), tensor(g, device), at)), outer, 1e-10, 1e-12
        )


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16, DType.F16])
def test_products_of_groups_in_narrow_types(dtype: DType, seed: np.random.Generator) -> None:
    x, w = (tensor(seed.normal(size=s)).cast(dtype) for s in ((40, 64), (3, 64, 16)))
    ends = [0, 13, 13, 40]
    y = segments.matmul(x, w, Tensor.from_ints(ends, CPU))
    wide = segments.matmul(x.cast(DType.F64), w.cast(DType.F64), Tensor.from_ints(ends, CPU))
    eps = 2.0 ** -{DType.F32: 23, DType.BF16: 7, DType.F16: 10}[dtype]
    torch.testing.assert_close(y.into_torch().double(), wide.into_torch(), rtol=2 * eps, atol=64 * eps)


@pytest.mark.parametrize("device", DEVICES, ids=["torch", "numpy", "fused"])
def test_sparse_products_are_those_of_the_dense_matrix(device: Device, seed: np.random.Generator) -> None:
    for entries in (0, 1, 17, 40):
        rows, cols, features = (int(n) for n in seed.integers(1, 9, 3))
        ends = draw_offsets(seed, rows, entries, "whole")
        columns, values = seed.integers(0, cols, entries), seed.normal(size=entries)
        dense = np.zeros((rows, cols))
        np.add.at(dense, (np.repeat(np.arange(rows), np.diff(ends)), columns), values)
        x, y = seed.normal(size=(rows, features)), seed.normal(size=(cols, features))
        v, c, o = tensor(values, device), tensor(columns, device), tensor(ends, device)
        np.testing.assert_allclose(np.asarray(ops.csr_matmul(v, c, o, tensor(y, device))), dense @ y, 1e-10, 1e-12)
        back = ops.csr_transposed_matmul(v, c, o, tensor(x, device), cols=cols)
        np.testing.assert_allclose(np.asarray(back), dense.T @ x, 1e-10, 1e-12)
        sampled = ops.csr_sampled_matmul(c, o, tensor(x, device), tensor(y, device))
        at = (x @ y.T)[np.repeat(np.arange(rows), np.diff(ends)), columns]
        np.testing.assert_allclose(np.asarray(sampled), at, 1e-10, 1e-12)


# -- refusals ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", [CPU, NUMPY], ids=["torch", "numpy"])
@pytest.mark.parametrize("ends", [[0, 5], [-1, 2], [0, 3, 2, 4]])
def test_wrong_offsets_are_refused_on_the_host(ends: list[int], device: Device) -> None:
    x, at = tensor(np.ones((4, 2)), device), Tensor.from_ints(ends, device)
    weight, one = tensor(np.ones((len(ends) - 1, 2, 2)), device), tensor(np.ones((len(ends) - 1, 2)), device)
    columns = Tensor.from_ints([0, 0, 0, 0], device)
    calls: list[Callable[[], Tensor]] = [
        lambda: segments.sum(x, at),
        lambda: segments.softmax(x, at),
        lambda: segments.ids(at, 4),
        lambda: segments.expand(one, at, 4),
        lambda: segments.matmul(x, weight, at),
        lambda: segments.outer(x, x, at),
        lambda: ops.csr_matmul(x[:, 0], columns, at, one),
    ]
    for call in calls:
        with pytest.raises(BoundsError, match=r"(?s)offsets.*given:.*expected:.*mend:"):
            np.asarray(call())


def test_wrong_shapes_and_words_are_refused() -> None:
    x, at = tensor(np.ones((4, 2))), Tensor.from_ints([0, 4], CPU)
    with pytest.raises(ShapeError, match="no list of ends"):
        segments.sum(x, Tensor.from_ints([], CPU))
    with pytest.raises(ShapeError, match="does not fit the offsets"):
        segments.expand(x, at, 4)
    with pytest.raises(ShapeError, match="does not fit rows and offsets"):
        segments.matmul(x, tensor(np.ones((2, 2, 2))), at)
    with pytest.raises(ConfigError, match="unknown reduction"):
        ops.segment_reduce(x, at, reduction="median")
    with pytest.raises(ArgumentError, match=r"(?s)one of two ways.*neither"):
        segments.sum(x)
    with pytest.raises(ArgumentError, match="one of two ways"):
        segments.sum(x, ids=at)
    with pytest.raises(BoundsError, match="out of range"):
        np.asarray(ops.csr_matmul(x[:, 0], Tensor.from_ints([0, 1, 2, 1], CPU), at, tensor(np.ones((2, 2)))))
    with pytest.raises(BoundsError, match="not those of segments"):
        np.asarray(ops.csr_matmul(x[:, 0], Tensor.from_ints([0, 1, 0, 1], CPU), Tensor.from_ints([0, 3], CPU), x[:2]))
    assert segments.offsets(Tensor.from_ints([2, 0, 3], CPU)).into_data().to_vec() == [0, 2, 2, 5]
    assert segments.offsets(Tensor.from_ints([], CPU)).into_data().to_vec() == [0]
