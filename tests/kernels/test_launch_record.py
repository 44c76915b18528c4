"""The record of launches, by which two versions of the kernels are compared, shows what it must show."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch

from burn_kernels import REGISTRY, softmax
from burn_kernels.autotune.key import Facts
from burn_kernels.autotune.tunable import TUNABLES
from burn_kernels.launch import H200, Launch
from burn_kernels.spec import Draw
from tests.kernels import launch_record


class _Flags(NamedTuple):
    LOG: bool


@pytest.mark.parametrize("name", ["gelu", "batch_norm", "rope", "sgd"])
def test_records_are_the_same_each_time_and_none_is_empty(name: str) -> None:
    first = launch_record.digests(f"call {name}")
    assert launch_record.differences(first, launch_record.digests(f"call {name}")) == []


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_problem_of_each_kernel_is_recorded_with_its_launches(name: str) -> None:
    problem = next(iter(REGISTRY[name].problems(Draw(sum(map(ord, name))))))
    *launches, last = launch_record.call_record(REGISTRY[name], problem, torch.float32, H200)
    assert launches
    assert last.startswith("-> ")


def test_another_grid_option_constant_or_argument_is_another_line() -> None:
    launch = Launch(softmax._forward, (4,), (torch.empty(3, 4), 5), {"LOG": False}, 4, 1)
    changes = [{"grid": (5,)}, {"warps": 8}, {"stages": 2}, {"constants": {"LOG": True}}, {"contracts": False}]
    changes += [{"arguments": (torch.empty(4, 3), 5)}, {"arguments": (torch.empty(3, 4), 6)}, {"early": True}]
    lines = {launch_record.line_of(dataclasses.replace(launch, **change)) for change in [{}, *changes]}
    assert len(lines) == 1 + len(changes)
    grouped = dataclasses.replace(launch, arguments=((torch.empty(3, 4), (5,)),))
    assert launch_record.line_of(grouped) == launch_record.line_of(launch)
    together = dataclasses.replace(launch, constants={"FLAGS": _Flags(LOG=False)})
    assert launch_record.line_of(together) == launch_record.line_of(launch)


def test_another_candidate_is_another_record() -> None:
    tunable, facts = TUNABLES["softmax"], Facts((8192,), (1024,), torch.bfloat16)
    before = launch_record.choice_record(tunable, facts, H200)
    fewer = dataclasses.replace(tunable, candidates=lambda *call: tunable.candidates(*call)[1:])
    assert launch_record.choice_record(fewer, facts, H200) != before
    assert launch_record.differences({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b", "c"]
