"""Specs and Calls are one object each while they live, are bounded, and survive pickling."""

from __future__ import annotations

import gc
import linecache
import pickle
import threading

import numpy as np
import pytest

from burn_torch import ops
from burn_torch.backend import Autodiff, LibTorch
from burn_torch.core.dtype import DType
from burn_torch.core.spec import BOOL_NUMBER, FLOAT_NUMBER, INT_NUMBER, TensorSpec
from burn_torch.ops import REGISTRY
from tests.autodiff.tape_harness import backward, of, tracked

F32 = TensorSpec.of((2, 3), DType.F32, "cpu")


def test_equal_specs_are_one_object() -> None:
    assert TensorSpec.of((2, 3), DType.F32, "cpu") is F32
    assert F32.with_shape((2, 3)) is F32
    assert F32.with_dtype(DType.F64).with_dtype(DType.F32) is F32
    assert (
        len({F32, F32.with_dtype(DType.F64), F32.with_shape((3, 2)), TensorSpec.of((2, 3), DType.F32, "cuda:0")}) == 4
    )


def test_specs_made_by_many_threads_are_one_object() -> None:
    specs: list[TensorSpec] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        specs.extend(TensorSpec.of((977, i), DType.F16, "cpu") for i in range(200))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(spec) for spec in specs}) == 200


def test_equal_calls_are_one_object_whatever_the_attributes_are_written_as() -> None:
    call = ops.sum.bind((F32,), {"dims": (0, 1)})
    assert ops.sum.bind((F32,), {"dims": [0, True]}) is call
    assert ops.sum.bind((F32,), {"dims": (1,)}) is not call


def test_fractional_attribute_is_refused() -> None:
    with pytest.raises(TypeError, match="float"):
        ops.sum.bind((F32,), {"dims": (0.0,)})


@pytest.mark.parametrize(
    "thing",
    [DType.BF16, F32, INT_NUMBER, FLOAT_NUMBER, BOOL_NUMBER, ops.exp, ops.sum.bind((F32,), {"dims": (1,)})],
    ids=str,
)
def test_pickling_gives_the_same_object(thing: object) -> None:
    assert pickle.loads(pickle.dumps(thing)) is thing


def test_calls_of_more_than_512_shapes_are_dropped() -> None:
    def run(sizes: range) -> None:
        for size in sizes:
            x = tracked(np.full(size, 0.5))
            gradient = of(backward(ops.sum(ops.tanh(x) * x, dims=(0,))), x)
            assert gradient.shape == (size,)

    rows = [REGISTRY[name] for name in ("tanh", "tanh_backward", "mul", "sum", "expand", "add")]

    def alive() -> list[int]:
        gc.collect()
        return [len(row._interned) for row in rows]

    before = alive()  # derived backwards of other rows keep Calls of these
    run(range(2000, 2600))
    after_600 = alive()
    run(range(2600, 3800))
    after_1800 = alive()
    assert all(len(row.calls) <= 512 for row in rows)
    for name, start, *ends in zip([row.name for row in rows], before, after_600, after_1800, strict=True):
        assert max(ends) <= start + 512, f"{name}: {start} Calls lived, {ends} after 600 and 1800 shapes more"


def test_new_shapes_compile_no_new_source() -> None:
    # the 1/n of a mean stood in the source as digits: each shape kept a text and its code for the life of the process
    backward(ops.mean(tracked(np.ones((3, 5))), dims=(0, 1)))
    before = len(linecache.cache)
    for rows in range(4, 24):
        backward(ops.mean(tracked(np.ones((rows, 5))), dims=(0, 1)))
    assert len(linecache.cache) == before


def test_attribute_that_is_wrong_is_named_with_its_row() -> None:
    spec = TensorSpec.of((5, 9), DType.F32, "cpu")
    with pytest.raises(TypeError, match=r"^sum: attribute dims is \(1.0,\), not tuple\[int, ...\]"):
        ops.sum.bind((spec,), {"dims": (1.0,)})
    with pytest.raises(TypeError, match=r"^sum\(x, \*, dims\): missing attribute dims"):
        ops.sum.bind((spec,), {})
    with pytest.raises(TypeError, match=r"^sum\(x, \*, dims\): unknown attributes \['keepdim'\]"):
        ops.sum.bind((spec,), {"dims": (1,), "keepdim": True})


def test_truth_value_among_sizes_is_kept_as_a_number() -> None:
    spec = TensorSpec.of((7, 1), DType.F32, "cpu")
    bound = ops.reshape.bind((spec,), {"shape": (True, 7)})
    assert repr(bound.result) == "(1, 7) f32 cpu"


def test_a_tape_on_which_layers_do_not_train_is_a_stack_of_its_own() -> None:
    plain, quiet = Autodiff(LibTorch()), Autodiff(LibTorch(), trains=False)
    assert (plain.trains, quiet.trains, LibTorch().trains) == (True, False, False)
    assert quiet is Autodiff(LibTorch(), trains=False) is Autodiff.above(LibTorch())
    assert Autodiff.above(plain) is Autodiff(plain)
    assert Autodiff.above(quiet) is Autodiff(quiet, trains=False)
    assert Autodiff.above(Autodiff(LibTorch(), "balanced")).checkpoint == "balanced"
    assert quiet.name == "Autodiff(LibTorch, trains=False)"
    over = Autodiff.over(LibTorch(), trains=False)
    assert (over.trains, over.lasting, Autodiff.above(over).lasting) == (False, False, False)
