"""`check` on a CPU: what it records, leaves as it was, says, and refuses.  What it finds: tests/kernels/faults."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import burn_kernels.torch as bk
from burn_kernels import REGISTRY, KernelArgumentError, softmax
from burn_kernels.spec import Draw
from burn_kernels.torch import checking
from burn_kernels.torch._problems import ADAPTERS, DRAWN, OPTIMIZERS, SEEDS, Call, cast_call
from burn_kernels.torch.checking import _examine


class Net(nn.Module):
    """Two norms, one of them twice, a batch norm and a softmax; keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.batch, self.second = nn.LayerNorm(6), nn.BatchNorm1d(6), nn.LayerNorm(6)
        self.softmax, self.drop = nn.Softmax(-1), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        y = self.second(self.batch(self.first(self.first(x))))
        return {"y": self.softmax(self.drop(y)) * scale, "count": torch.tensor(3)}


@pytest.fixture
def net() -> Net:
    network = Net()
    bk.patch(network)
    return network


def test_calls_alike_are_looked_at_once_and_their_places_named(net: Net) -> None:
    report = bk.check(net, torch.randn(5, 6))
    assert report.ok
    assert [(finding.op, finding.where) for finding in report.findings] == [
        ("layer_norm", ("first", "second")),
        ("batch_norm", ("batch",)),
        ("softmax", ("softmax",)),
    ]
    first = report.findings[0]
    assert first.inputs == "x (5, 6), w (6,), b (6,), eps 1e-05"
    assert first.dtype == "float32"
    assert first.config.startswith("reference used")
    assert set(first.errors) == {"output", "gradient of x", "gradient of w", "gradient of b"}
    assert report.reference_used
    assert "the reference was used and checked" in str(report)
    assert str(report).startswith("3 calls of batch_norm, layer_norm, softmax: 0 with faults")


@pytest.mark.parametrize(
    "batch", [(torch.randn(5, 6), 2.0), {"x": torch.randn(5, 6), "scale": 2.0}], ids=["tuple", "dict"]
)
def test_batches_are_positional_or_by_name_and_a_loss_may_be_given(net: Net, batch: Any) -> None:
    assert bk.check(net, batch, loss=lambda out: out["y"].square().sum()).ok


def test_the_model_is_as_it_was(net: Net) -> None:
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    state = {name: x.clone() for name, x in net.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    bk.check(net, torch.randn(5, 6, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.rand(1), expected)
    torch.testing.assert_close(net.state_dict(), state, rtol=0.0, atol=0.0)
    assert all(p.grad is not None and torch.equal(p.grad, torch.ones_like(p)) for p in net.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_a_compiled_model_is_checked_through_its_operations(net: Net) -> None:
    torch._dynamo.reset()
    compiled: Any = torch.compile(net, backend="aot_eager")
    assert {finding.op for finding in bk.check(compiled, torch.randn(5, 6)).findings} == {
        *("batch_norm", "layer_norm", "softmax")
    }


WITHOUT_OPERATOR = {"band_scan", "grouped_matmul", "grouped_outer", "log_band_scan", "quantized_linear"}
"""New families, of which launchers are there and operators are not yet."""


def test_every_operator_and_every_operation_is_known() -> None:
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("burn_kernels::")]
    defined = {name.removeprefix("burn_kernels::").split(".")[0] for name in names}
    forwards = {name for name in defined if not name.endswith(("_backward", "_"))}
    assert forwards == set(ADAPTERS) - set(OPTIMIZERS)
    assert set(DRAWN) <= set(REGISTRY)
    assert set(REGISTRY) - set(DRAWN) <= WITHOUT_OPERATOR


@pytest.mark.parametrize("name", sorted(DRAWN))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_references_on_drawn_shapes(name: str, dtype: torch.dtype) -> None:
    report = bk.check(ops=[name], shapes=6, dtype=dtype)
    assert report.ok, report
    assert len(report.findings) == 6


# -- what is found -------------------------------------------------------------------------------------
def test_a_result_that_differs_from_run_to_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax.forward, "reference", lambda x: torch.softmax(x, -1) + 1e-8 * torch.rand_like(x))
    faults = _examine(Call("softmax", (torch.randn(3, 7),)), 0).faults
    assert "the output: other bits the second time" in faults


def test_a_run_that_raises_is_a_finding_and_calls_until_then_are_looked_at() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = bk.LayerNorm(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.norm(x)
            raise ValueError("a fault of its own")

    report = bk.check(Broken(), torch.randn(2, 4))
    assert [finding.op for finding in report.findings] == ["Broken", "layer_norm"]
    assert report.faulty[0].faults == ("its own run raises ValueError: a fault of its own",)
    assert "Broken: the batch" in str(report)


def test_a_model_without_fused_operations_is_refused() -> None:
    with pytest.raises(
        KernelArgumentError,
        match=r"(?s)ran none of the fused.*Linear with 1 modules.*burn_kernels.torch.*patch\(model\)",
    ):
        bk.check(nn.Linear(2, 2), torch.randn(1, 2))


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(KernelArgumentError, match=r"(?s)no such operation.*sinh.*sgd, silu.*leave ops out"):
        bk.check(ops=["sinh"])


def test_torchs_own_kernels_are_no_reference_on_a_gpu() -> None:
    def told(*, on_gpu: bool, fell_back: bool = False) -> str:
        return checking._config(checking._Seen([], fell_back), on_gpu=on_gpu)

    assert told(on_gpu=True) == checking.LIBRARY
    assert told(on_gpu=True, fell_back=True) == checking.REFERENCE
    assert told(on_gpu=False) == checking.REFERENCE


@pytest.mark.parametrize(("name", "count"), [("sum", 1), ("mean", 77)])
def test_a_sum_in_which_all_cancels_may_be_off_by_units_of_what_was_added(name: str, count: int) -> None:
    x = Draw(5).normal(7, 11)
    x -= x.mean()
    size = ADAPTERS[name].size((x.float(), None, False))
    assert size == pytest.approx(float(x.norm()) / count, rel=1e-5)
    assert size > 1e4 * float(x.float().sum().abs()) / count  # a floor that counts here
    assert ADAPTERS["amax"].size((x, None, False)) == 0.0


def test_rows_far_from_zero_may_be_off_by_units_of_what_their_mean_takes_away() -> None:
    norm, dy = ADAPTERS["residual_layer_norm"], torch.tensor([[1.0, -2.0]])
    x, w = torch.tensor([[2.0, 2.0 + 2**-5]]), torch.tensor([3.0, 0.5])
    zero = torch.zeros_like(x)
    far = (2.0 + 2**-5) / (2**-12 + 1e-5) ** 0.5
    args = (x, zero, w, None, 1e-5, 0.0, None)
    assert norm.size(args) == pytest.approx(3.0 * far)
    assert norm.floor(args, dy) == pytest.approx(3.0 * far / (2**-12 + 1e-5) ** 0.5)
    assert ADAPTERS["layer_norm"].size((x, None, None, 1e-5)) == pytest.approx(far)
    near = (x - 2.0, zero, w, None, 1e-5, 0.0, None)
    assert norm.floor(near, dy) == 0.0
    assert norm.size(near) < 7.0


@pytest.mark.parametrize("name", ["batch_norm", "batch_norm_eval", "group_norm"])
def test_torchs_norms_are_given_ones_where_only_a_bias_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch's kernels of a GPU raise in the backward of a batch norm with a bias and no weight
    seen: list[Any] = []
    own = getattr(nn.functional, name.removesuffix("_eval"))

    def watched(*args: Any) -> Any:
        seen.append(args[2 if name == "group_norm" else 3])
        return own(*args)

    monkeypatch.setattr(nn.functional, name.removesuffix("_eval"), watched)
    x, b = torch.randn(3, 4, 5), torch.randn(4)
    rest = (
        (2, 1e-5, "none")
        if name == "group_norm"
        else (b, b.square(), *((0.1,) if name == "batch_norm" else ()), 1e-5, "none")
    )
    ADAPTERS[name].twin(x, None, b, *rest)
    assert torch.equal(seen[0], torch.ones(4))
    ADAPTERS[name].twin(x, None, None, *rest)
    assert seen[1] is None


class Calling(nn.Module):
    """A model that makes one drawn call twice, with its first tensor as the batch."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        op = getattr(torch.ops.burn_kernels, self.call.op)
        return [op(x, *self.call.args[1:]) for _ in range(2)]


@pytest.mark.parametrize("name", [name for name in sorted(DRAWN) if not isinstance(DRAWN[name](Draw(1)).args[0], list)])
def test_a_model_of_every_operation_is_checked(name: str) -> None:
    # strides, axes and the like come as lists, which are no keys
    call = DRAWN[name](Draw(1))
    report = bk.check(Calling(call), call.args[0], offsets=False)
    assert report.ok, report
    assert [(finding.op, finding.where) for finding in report.findings] == [(name, ("Calling",))]


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_seeds_stay_on_the_cpu_when_a_call_moves(name: str) -> None:
    assert ADAPTERS[name].names[SEEDS[name]] == "seed"
    draw = Draw(0)
    while not isinstance((call := DRAWN[name](draw)).args[SEEDS[name]], torch.Tensor):
        pass
    moved = cast_call(call, torch.float32, torch.device("meta"))
    assert moved.args[SEEDS[name]].device.type == "cpu"
    assert moved.args[0].device.type == "meta"


def test_every_seed_is_known() -> None:
    assert {name for name, adapter in ADAPTERS.items() if "seed" in adapter.names} == set(SEEDS)
