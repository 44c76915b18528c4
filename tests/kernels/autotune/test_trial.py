"""The fence: what is written past an end, left out, or written to an input is found; right kernels pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_kernels.autotune.key import Facts, row_facts
from burn_kernels.autotune.trial import GUARD_BYTES, Trial, Truth, agree, fenced, first, judge
from burn_kernels.autotune.tunable import Inputs


def trial(fake: Any, count: int = 1000, dtype: torch.dtype = torch.float32) -> Trial:
    x = Inputs("cpu", seed=3).normal(count, dtype=dtype)
    return Trial((x,), lambda given, config: fake.double(*given, config), lambda given: given[0] * 2)


DTYPES = [torch.float32, torch.float16, torch.bfloat16]
FAULTS = {
    "value": "output 0: .* error",
    "tail": "output 0: 1 elements not written",
    "nan": "output 0: .* elements not written",
    "past": "writes past the end of allocation 0",
    "before": "writes before the start of allocation 0",
    "input": "writes to input 0",
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_a_right_kernel_passes(fake: Any, dtype: torch.dtype, count: int) -> None:
    case = trial(fake, count, dtype)
    assert judge(case, fake.configs[0], Truth.of(case), dtype) == []
    base, faults = first(case, fake.configs[0])
    assert faults == []
    assert agree(case, fake.configs[1], base, dtype) == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_beside_float64(fake: Any, fault: str, dtype: torch.dtype) -> None:
    fake.faults[fake.configs[1]] = fault
    case = trial(fake, dtype=dtype)
    faults = judge(case, fake.configs[1], Truth.of(case), dtype)
    with pytest.raises(AssertionError, match=FAULTS[fault]):
        assert not faults, "; ".join(faults)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_beside_another_config(fake: Any, fault: str, dtype: torch.dtype) -> None:
    fake.faults[fake.configs[1]] = fault
    case = trial(fake, dtype=dtype)
    base, _ = first(case, fake.configs[0])
    assert agree(case, fake.configs[1], base, dtype) != []


def test_faults_of_the_first_config_at_full_size_are_found(fake: Any) -> None:
    fake.faults[fake.configs[0]] = "past"
    assert first(trial(fake), fake.configs[0])[1] == ["writes past the end of allocation 0"]


def test_integers_left_out_or_wrong_are_found() -> None:
    x = torch.arange(10)

    def run(given: tuple[torch.Tensor], config: int) -> torch.Tensor:
        out = torch.empty_like(given[0])
        out[: 10 - config] = given[0][: 10 - config]
        return out

    case = Trial((x,), run, lambda given: given[0])
    assert judge(case, 0, Truth.of(case), torch.float32) == []
    assert judge(case, 2, Truth.of(case), torch.float32) == [
        "output 0: 2 elements not written, or NaN where there should be numbers",
        "output 0: other integers than the reference",
    ]


def test_a_missing_output_is_found() -> None:
    x = torch.ones(4)
    case = Trial((x,), lambda given, config: (given[0] * 2,)[:config], lambda given: given[0] * 2)
    assert judge(case, 0, Truth.of(case), torch.float32) == ["0 outputs, expected 1"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(3, 5),
        lambda: torch.empty_like(torch.zeros(5, 3).T),
        lambda: torch.empty_strided((3, 5), (1, 4)),
        lambda: torch.zeros(3, 5).new_empty(7, dtype=torch.float16),
        lambda: torch.empty((), dtype=torch.float64),
        lambda: torch.empty(4, dtype=torch.int32),
        lambda: torch.empty(4, dtype=torch.bool),
    ],
)
def test_what_the_fence_gives_is_as_torch_gives_it_but_full_of_poison(make: Any) -> None:
    plain = make()
    with fenced() as fence:
        x = make()
    assert (x.shape, x.stride(), x.dtype, x.device) == (plain.shape, plain.stride(), plain.dtype, plain.device)
    assert x.data_ptr() % 16 == 0
    if x.dtype.is_floating_point:
        assert x.isnan().all()
    elif x.dtype == torch.bool:
        assert x.all()
    else:
        assert (x == torch.iinfo(x.dtype).max).all()
    assert len(fence.rooms) == 1
    assert fence.rooms[0][0].numel() >= 2 * GUARD_BYTES + x.numel() * x.element_size()
    x.zero_()
    assert fence.broken() == []


def test_the_fence_falls_after_the_block_and_zero_sized_memory_needs_none() -> None:
    with fenced() as fence:
        torch.empty(0, 5)
        torch.zeros(3)
    torch.empty(3)
    assert fence.rooms == []


def test_inputs_lie_as_the_problem_does() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for layout in ("packed", "strided"):
            for align in (dtype.itemsize, 8, 16):
                facts = Facts((5,), (32,), dtype, align, layout)
                x = Inputs("cpu").rows(facts, 5, 32)
                assert x.isfinite().all()
                assert row_facts(dtype, 5, 32, (x.stride(0),), x.data_ptr() & 15) == facts


def test_the_global_random_state_does_not_move() -> None:
    before = torch.get_rng_state()
    inputs = Inputs("cpu", seed=5)
    inputs.normal(4, dtype=torch.float32)
    inputs.integers(0, 9, 4)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_a_kernel_draws_from_numbers_alone_must_give_is_worked_out() -> None:
    trial = Trial((3, 0.5), lambda given, config: torch.ones(2), lambda given: torch.full((2,), given[1] * 2))
    truth = Truth.of(trial)
    assert torch.equal(truth.exact[0], torch.ones(2))
    assert judge(trial, None, truth, torch.float32) == []


def test_rows_of_odd_length_begin_where_tensors_begin() -> None:
    """A kernel's outputs begin at a whole vector as well, so rows of both have the same alignment."""
    packed = Facts((3,), (50_257,), torch.bfloat16, 2)
    assert Inputs("cpu").rows(packed, 3, 50_257).storage_offset() == 0
    apart = Facts((3,), (32,), torch.bfloat16, 4)  # rows of whole vectors, which begin beside one
    assert Inputs("cpu").rows(apart, 3, 32).storage_offset() == 2
