"""Programs with steps that cannot be recorded: they are cut into parts, and say why."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burn_torch import ops
from burn_torch.backend import LibTorch
from burn_torch.backend.libtorch.recorded.segments import divide
from burn_torch.backend.libtorch.recorded.settings import precision_settings
from burn_torch.core.dtype import DType
from burn_torch.core.errors import DeviceError
from burn_torch.core.spec import FLOAT_NUMBER, INT_NUMBER
from burn_torch.graph import Graph, Trace, interpret
from tests.backend.libtorch.capturing import capture
from tests.backend.libtorch.host_arena import HostArena, Replayed, captured, elementwise, spec


# -- what cannot be recorded --------------------------------------------------------------------------------------
def test_a_row_that_cannot_be_recorded_splits_the_program() -> None:
    def build(a: Any, x: Any, n: Any) -> list[Any]:
        h = ops.exp(ops.sin(a * n) + x)
        h = ops.cos(h)
        return [a + h, ops.sum(h, dims=(0,))]

    graph = elementwise(build, spec(3), spec(3), FLOAT_NUMBER)
    program, _ = captured(graph, (0,), refuses=("exp",))
    a, b = torch.zeros(3), torch.zeros(3)
    for number in range(3):
        x = torch.full((3,), float(number))
        expected = interpret(graph, LibTorch(), [b, x, 0.5 + number])
        a, total = program(a, x, 0.5 + number)
        b = expected[0]
        assert torch.equal(a, b)
        assert torch.equal(total, expected[1])
    [split] = program.splits
    assert split.call.startswith("exp(")
    assert split.reason == "it cannot be captured: operation not permitted when stream is capturing"
    assert "more words" not in str(split)
    assert program.sizes.recordings == 2


@pytest.mark.parametrize("refused", ["sin", "cos", "exp", "add", "sum"])
def test_a_split_anywhere_leaves_the_results_as_they_are(refused: str) -> None:
    def build(a: Any, x: Any) -> list[Any]:
        h = ops.cos(ops.exp(ops.sin(a)))
        return [a + h, ops.reshape(a, shape=(1, 3)), ops.sum(h * x, dims=(0,)), h]

    graph = elementwise(build, spec(3), spec(3))
    program, _ = captured(graph, (0,), refuses=(refused,))
    a, b = torch.arange(3.0), torch.arange(3.0)
    for number in range(3):
        x = torch.full((3,), float(number))
        expected = interpret(graph, LibTorch(), [b, x])
        outputs = program(a, x)
        for y, z in zip(outputs, expected, strict=True):
            assert torch.equal(y, z)
        a, b = outputs[0], expected[0]
    assert len(program.splits) == 1


def test_a_program_of_which_nothing_can_be_recorded() -> None:
    graph = elementwise(lambda a, n: [ops.exp(a), n + 1], spec(3), INT_NUMBER)
    program, _ = captured(graph, (0,), refuses=("exp",))
    a = torch.zeros(3)
    for number in range(3):
        expected = a.exp()
        a, after = program(a, number)
        assert torch.equal(a, expected)
        assert after == number + 1
    assert program.sizes.recordings == 0


def test_a_program_without_operations() -> None:
    program, _ = captured(elementwise(lambda a, x, n: [x, a, n], spec(2), spec(2), FLOAT_NUMBER), (0,))
    for number in range(3):
        x, a, n = program(torch.ones(2), torch.zeros(2) + number, 0.5)
        assert (x.tolist(), a.tolist(), n) == ([number] * 2, [1, 1], 0.5)


def test_memory_that_runs_out_is_reported_as_it_is() -> None:
    class Full(HostArena):
        def record(self, run: Any, writes: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    program = capture(elementwise(lambda a: [ops.exp(a)], spec(3)), arena=Full())
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 9 GiB"):
        program(torch.ones(3))


def test_a_later_part_may_lie_where_an_earlier_one_left_what_nobody_reads_any_more() -> None:
    def build(a: Any, x: Any) -> list[Any]:
        h = ops.sin(a + x)
        k = h * ops.exp(a * 2.0)  # exp is refused: a part for itself
        return [a + ops.exp(k * 0.5), k]

    graph = elementwise(build, spec(3), spec(3))
    program, arena = captured(graph, (0,), refuses=("exp",))
    a, b = torch.zeros(3), torch.zeros(3)
    for number in range(3):
        x = torch.full((3,), float(number))
        expected = interpret(graph, LibTorch(), [b, x])
        a, k = program(a, x)
        b = expected[0]
        assert torch.equal(a, b)
        assert torch.equal(k, expected[1])
    assert [len(one.given_up) for one in arena.recordings[-3:]] == [1, 0, 0]  # h, behind the second part
    assert [len(one._spoils) for one in arena.recordings[-3:]] == [0, 0, 1]


class Twin:
    """A process group of two that hold the same values: sums are there when somebody waits for them."""

    class Work:
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

        def wait(self) -> None:
            self.x.mul_(2)

    def all_reduce(self, x: torch.Tensor, async_op: bool) -> Work:
        assert async_op
        return self.Work(x)


def test_a_transfer_weighted_by_a_number_that_changes_is_launched_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start was written in other rows, to read the number from the device; the wait found nothing under way."""
    monkeypatch.setattr("burn_torch.ops.collectives._group", lambda world: Twin())

    def build(a: Any, x: Any, n: Any) -> list[Any]:
        flats = [ops.mean_start(n * 2.0, y, x, world=2) for y in (ops.sin(x), ops.exp(a))]
        one, other = (ops.mean_wait(flat, world=2) for flat in flats)
        return [a + ops.slice(one, ranges=((0, 300, 1),)), ops.cos(other)]

    graph = elementwise(build, spec(300), spec(300), FLOAT_NUMBER)
    program, _ = captured(graph, (0,))
    a, b = torch.zeros(300), torch.zeros(300)
    for number in range(1, 4):
        x = torch.linspace(0, number, 300)
        a, cosine = program(a, x, 0.5 * number)
        torch.testing.assert_close(cosine, torch.cos(torch.cat([torch.exp(b), x])))
        b = b + torch.sin(x)
        torch.testing.assert_close(a, b)
    # packing and division are recorded; what is summed lies where it was packed, so no part keeps a copy
    assert [split.call.partition("(")[0] for split in program.splits] == ["mean_send"] * 2 + ["mean_arrive"] * 2
    assert program.sizes.recordings == 3
    assert program.sizes.static_bytes < 300 * 4 + 100  # x and the number


def test_a_transfer_of_what_cannot_be_packed_in_a_recording_is_kept_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("burn_torch.ops.collectives._group", lambda world: Twin())

    def build(x: Any) -> list[Any]:
        return [ops.cos(ops.mean_wait(ops.mean_start(3.0, ops.sin(x), world=2), world=2))]

    program, _ = captured(elementwise(build, spec(5)), refuses=("mean_pack",))
    for number in range(3):
        x = torch.linspace(0, number, 5)
        torch.testing.assert_close(program(x)[0], torch.cos(torch.sin(x)))
    assert [split.call.partition("(")[0] for split in program.splits] == ["mean_pack", "mean_send", "mean_arrive"]


def test_a_part_of_nothing_but_views_is_not_recorded() -> None:
    def build(x: Any) -> list[Any]:
        y = ops.permute(ops.exp(ops.sin(x)), axes=(1, 0))
        return [ops.cos(ops.exp(y))]

    graph = elementwise(build, spec(2, 3))
    program, _ = captured(graph, refuses=("exp",))
    x = torch.arange(6.0).reshape(2, 3) / 6
    for factor in (1.0, 2.0):
        torch.testing.assert_close(program(x * factor)[0], torch.cos(torch.exp(torch.exp(torch.sin(x * factor)).T)))
    assert program.sizes.recordings == 2


def test_a_number_without_a_form_splits_and_says_which() -> None:
    graph = elementwise(lambda x, n: [ops.exp(ops.hard_shrink(ops.sin(x), n))], spec(4), FLOAT_NUMBER)
    program, _ = captured(graph)
    x = torch.linspace(-1, 1, 4)
    for n in (0.5, 0.9):
        assert torch.equal(program(x, n)[0], interpret(graph, LibTorch(), [x, n])[0])
    reasons = [split.reason for split in program.splits]
    if reasons:  # a decomposition would take its place
        assert reasons == ["its lambd changes from call to call, and no form of it reads numbers on the device"]


def test_a_row_without_a_form_is_written_in_others() -> None:
    graph = elementwise(lambda x, n: [ops.layer_norm(x, None, None, n)[0]], spec(4, 6), FLOAT_NUMBER)
    program, _ = captured(graph)
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
    for eps in (1e-5, 0.5):
        torch.testing.assert_close(program(x, eps)[0], interpret(graph, LibTorch(), [x, eps])[0])
    assert program.splits == ()


def test_a_shape_from_data_splits() -> None:
    trace = Trace()
    x = trace.input(spec(4, place="cpu"))
    call = ops.nonzero.bind((x.spec,), {})
    from burn_torch.graph import Node

    graph = Graph([(0, x.spec)], [Node(call, (0,), (1,))], ())
    [split] = divide(graph, "cpu").splits
    assert split.reason == "its shape depends on the data, so it waits for the device"


def test_a_row_on_another_device_splits() -> None:
    graph = elementwise(lambda x, y: [ops.exp(x), ops.sin(y)], spec(3, place="cuda:0"), spec(3))
    planned = divide(graph, "cuda:0")
    assert [split.reason for split in planned.splits] == ["it computes on cpu, not on cuda:0"]
    assert [segment.captured for segment in planned.segments] == [True, False]


def test_no_device_is_reported() -> None:
    with pytest.raises(DeviceError, match=r"(?s)cannot be recorded.*no value on a CUDA device.*without CUDA graphs"):
        capture(elementwise(lambda x: [ops.exp(x)], spec(3)))
    graph = elementwise(lambda x, y: [ops.exp(x), y], spec(3, place="cuda:0"), spec(3, place="cuda:1"))
    with pytest.raises(DeviceError, match=r"(?s)cuda:0, cuda:1.*one CUDA device.*move the model"):
        capture(graph)


def test_a_program_that_fails_whole_is_launched_plainly_and_says_so() -> None:
    class Failing(HostArena):
        def record(self, run: Any, writes: Any) -> Any:
            if not self.recordings:  # each operation alone is recorded well
                self.recordings.append(Replayed(run, ()))
                raise RuntimeError("something else")
            return super().record(run, writes)

    program = capture(elementwise(lambda a: [ops.exp(ops.sin(a))], spec(3)), (0,), arena=Failing())
    (y,) = program(torch.ones(3))
    torch.testing.assert_close(y, torch.ones(3).sin().exp())
    assert {split.reason for split in program.splits} == {"the part that it is in cannot be captured: something else"}


def test_errors_of_the_step_itself_are_its_own() -> None:
    graph = elementwise(lambda x, i: [ops.select(x, i, dim=0)], spec(3), spec(2, dtype=DType.I64))
    program, _ = captured(graph)
    with pytest.raises(IndexError, match="out of range"):
        program(torch.ones(3), torch.tensor([0, 7]))


def test_torch_s_precision_is_part_of_what_names_a_program() -> None:
    before = precision_settings()
    assert hash(before) == hash(precision_settings())
    kept = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert precision_settings() != before
    finally:
        torch.set_float32_matmul_precision(kept)
    assert precision_settings() == before
