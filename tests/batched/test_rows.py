"""Every row computes many samples at once as it computes each alone: all samples of the table, all sets of inputs."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch.backend import LibTorch, NdArray
from burn_torch.backend.base import Backend
from burn_torch.backend.batched import Batched
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, TraceError
from burn_torch.core.spec import NUMBER_SPECS, TensorSpec
from burn_torch.ops import REGISTRY, Call, Op, op
from burn_torch.ops.samples import Sample, normalise

ROWS = sorted(name for name, row in REGISTRY.items() if "::" not in name)
MIXING = {"batch_norm", "batch_norm_backward"}
SAMPLES = 3
WIDE = [
    name
    for name in ROWS
    if name not in MIXING and any(sum(map(callable, s.inputs)) > 4 for s in normalise(REGISTRY[name].samples))
]
"""Rows with a sample of more than four tensors."""


def drawn(row: Op, sample: Sample, number: int, count: int) -> list[list[Any]]:
    """The inputs of `count` samples: arrays of float64, int64 and bool differ, numbers are the same."""
    generators = [np.random.default_rng(zlib.crc32(f"{row.name} {number} {i}".encode())) for i in range(count)]
    return [sample.draw(generator) for generator in generators]


def bound(row: Op, inputs: list[Any], sample: Sample) -> Call:
    specs = [x if x is None else NUMBER_SPECS[type(x)] if not isinstance(x, np.ndarray) else spec_of(x) for x in inputs]
    attrs = {n: DType.F64 if isinstance(v, DType) and v.is_float else v for n, v in sample.attrs.items()}
    return row.bind(specs, attrs)


def spec_of(x: np.ndarray[Any, Any]) -> Any:
    return LibTorch().spec(LibTorch().from_data(TensorData.of(x), "cpu"))


def subsets(inputs: list[Any], *, every: bool) -> Iterator[tuple[int, ...]]:
    """Yields which inputs have samples: of more than four tensors one, two, all but one, and all, unless `every`."""
    tensors = [i for i, x in enumerate(inputs) if isinstance(x, np.ndarray)]
    count = len(tensors)
    sizes = range(1, count + 1) if every or count <= 4 else (1, 2, count - 1, count)
    for size in sizes:
        yield from itertools.combinations(tensors, size)


def primitive(backend: Backend, x: Any) -> Any:
    return backend.from_data(TensorData.of(x), "cpu") if isinstance(x, np.ndarray) else x


@pytest.mark.parametrize("leaf", [LibTorch(), NdArray()], ids=["LibTorch", "NdArray"])
@pytest.mark.parametrize("name", ROWS)
def test_many_samples_are_computed_as_each_alone(name: str, leaf: Backend) -> None:
    if REGISTRY[name].barrier:
        pytest.skip("refused, which other tests show")
    compare(name, leaf, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_any_of_many_inputs_may_have_samples(name: str) -> None:
    compare(name, LibTorch(), every=True)


def compare(name: str, leaf: Backend, *, every: bool) -> None:
    row = REGISTRY[name]
    batched = Batched(leaf)
    for number, sample in enumerate(normalise(row.samples)):
        draws = drawn(row, sample, number, SAMPLES)
        call = bound(row, draws[0], sample)
        for many in subsets(draws[0], every=every):
            each = [[x if i in many else draws[0][i] for i, x in enumerate(inputs)] for inputs in draws]
            expected = [leaf.execute(call, [primitive(leaf, x) for x in inputs]) for inputs in each]
            wrapped = [
                batched.wrap(primitive(leaf, np.stack([inputs[i] for inputs in each]))) if i in many
                else primitive(leaf, x)
                for i, x in enumerate(each[0])
            ]  # fmt: skip
            with batched.samples(SAMPLES) as looped:
                results = batched.execute(call, wrapped)
            assert not looped, f"{call} loops over {list(looped)}"
            for output, y in enumerate(results):
                if y is None:
                    assert call.results[output] is None or expected[0][output] is None
                    continue
                actual = leaf.into_data(y.primitive).values
                wanted = np.stack([leaf.into_data(outputs[output]).values for outputs in expected])
                if row.random:
                    assert actual.shape == wanted.shape
                else:
                    # another order of the same sums: a few roundings of the largest term, all in float64
                    np.testing.assert_allclose(actual, wanted, rtol=1e-10, atol=1e-11, err_msg=f"{call}, many {many}")


# -- random numbers --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", [name for name in ROWS if REGISTRY[name].random and "shape" in REGISTRY[name].signature.attrs]
)
def test_each_sample_draws_its_share_of_what_the_whole_batch_draws(name: str) -> None:
    row, leaf = REGISTRY[name], LibTorch()
    numbers = {"randint": (0, 1000), "random_bits": (), "bernoulli": (0.5,), "dropout_mask": (0.5,)}.get(
        name, (0.0, 1.0)
    )
    attrs = {"shape": (1, 4), "place": "cpu"} | ({} if name == "random_bits" else {"dtype": DType.F64})
    if name == "randint":
        attrs["dtype"] = DType.I64
    specs = [NUMBER_SPECS[type(x)] for x in (*numbers, 7, 11)]
    batched = Batched(leaf)
    with batched.samples(5):
        (output,) = batched.execute(row.bind(specs, attrs), [*numbers, 7, 11])
    (whole,) = leaf.execute(row.bind(specs, {**attrs, "shape": (5, 4)}), [*numbers, 7, 11])
    drawn, wanted = leaf.into_data(output.primitive).values, leaf.into_data(whole).values
    assert drawn.shape == (5, 1, 4)
    np.testing.assert_array_equal(drawn[:, 0], wanted)
    assert len(np.unique(drawn.reshape(5, 4), axis=0)) > 1


def test_dropout_of_a_shared_value_differs_from_sample_to_sample() -> None:
    leaf = LibTorch()
    x = np.ones((1, 16))
    batched = Batched(leaf)
    call = REGISTRY["dropout"].bind([spec_of(x), *(NUMBER_SPECS[type(v)] for v in (0.5, 7, 11))], {})
    with batched.samples(4):
        (output,) = batched.execute(call, [primitive(leaf, x), 0.5, 7, 11])
    drawn = leaf.into_data(output.primitive).values
    assert drawn.shape == (4, 1, 16)
    assert len(np.unique(drawn[:, 0], axis=0)) == 4


# -- loops and refusals ----------------------------------------------------------------------------------
@op(torch=lambda x: torch.linalg.inv(x), numpy=np.linalg.inv, namespace="test_batched")
def inverse(x: TensorSpec) -> TensorSpec:
    """The inverse of a matrix, a row without a rule of batches.  Shapes: x (n, n) -> (n, n).  Dtypes: float."""
    return x


@pytest.mark.parametrize("leaf", [LibTorch(), NdArray()], ids=["LibTorch", "NdArray"])
def test_a_row_without_rule_or_decomposition_loops_and_says_so(leaf: Backend, seed: np.random.Generator) -> None:
    x = seed.normal(size=(4, 3, 3)) + 3 * np.eye(3)
    batched = Batched(leaf)
    with batched.samples(4) as looped:
        (output,) = batched.execute(inverse.bind([spec_of(x[0])], {}), [batched.wrap(primitive(leaf, x))])
    assert list(looped) == ["test_batched::inverse"]
    np.testing.assert_allclose(leaf.into_data(output.primitive).values, np.linalg.inv(x), rtol=1e-12, atol=1e-12)


def test_what_all_samples_share_is_computed_once() -> None:
    leaf = LibTorch()
    batched = Batched(leaf)
    x = primitive(leaf, np.ones((2, 2)))
    with batched.samples(4):
        (output,) = batched.execute(REGISTRY["exp"].bind([spec_of(np.ones((2, 2)))], {}), [x])
    assert isinstance(output, torch.Tensor)
    assert not batched.is_many(output)


@pytest.mark.parametrize("name", sorted(MIXING))
def test_rows_that_mix_the_items_of_one_batch_are_refused(name: str) -> None:
    row = REGISTRY[name]
    sample = normalise(row.samples)[0]
    inputs = drawn(row, sample, 0, 1)[0]
    batched = Batched(LibTorch())
    wrapped = [primitive(LibTorch(), x) for x in inputs]
    wrapped[0] = batched.wrap(primitive(LibTorch(), np.stack([inputs[0]] * 2)))
    with (
        batched.samples(2, is_split=True),
        pytest.raises(
            ArgumentError,
            match=r"batch normalisation in training mixes the samples\n  given:    batch_norm.*2 samples"
            r"\n  expected: layers that treat each sample by itself\n  mend:     use model.valid\(\)",
        ),
    ):
        batched.execute(bound(row, inputs, sample), wrapped)


@pytest.mark.parametrize("name", ["mask_select", "nonzero"])
def test_rows_whose_shape_depends_on_data_are_refused(name: str) -> None:
    row = REGISTRY[name]
    sample = normalise(row.samples)[0]
    inputs = drawn(row, sample, 0, 1)[0]
    batched = Batched(LibTorch())
    wrapped = [batched.wrap(primitive(LibTorch(), np.stack([x] * 2))) for x in inputs]
    with (
        batched.samples(2),
        pytest.raises(
            TraceError,
            match=rf"{name}: its shape would differ from sample to sample\n  given: .*test_rows.py"
            r"(.|\n)*expected: operations whose result shape(.|\n)*mend:     choose by value with mask_where",
        ),
    ):
        batched.execute(bound(row, inputs, sample), wrapped)


def test_values_of_samples_cannot_be_read() -> None:
    batched = Batched(LibTorch())
    x = batched.wrap(primitive(LibTorch(), np.ones((2, 3))))
    match = r"a value was read in a function that computes many samples(.|\n)*given:(.|\n)*expected:(.|\n)*mend: "
    with pytest.raises(TraceError, match=match):
        batched.into_data(x)
    with pytest.raises(TraceError, match=match):
        x.detach()


def test_stacks_that_last_are_one_object_and_bounded_in_plans() -> None:
    leaf = LibTorch()
    batched = Batched(leaf)
    assert Batched(leaf) is batched
    x = spec_of(np.ones((1, 2)))
    for n in range(1, 40):
        with batched.samples(n):
            batched.execute(REGISTRY["exp"].bind([x], {}), [batched.wrap(torch.ones(n, 1, 2, dtype=torch.float64))])
    assert len(batched._plans) <= 4096
