"""Optimizers beside those of torch: the same steps, and states that go from one to the other."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import burn_kernels.torch as bk
from burn_kernels import KernelArgumentError, KernelShapeError, tensor_table
from burn_kernels.torch.optim import _number


def model() -> nn.Sequential:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(12, 5), nn.Linear(5, 4))
    first: Any = network[0]
    first.to(memory_format=torch.channels_last)
    return network


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, start: int = 0) -> list[float]:
    losses = []
    for step in range(start, start + steps):
        torch.manual_seed(100 + step)
        x, targets = torch.randn(8, 2, 3, 3), torch.randint(0, 4, (8,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), targets)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "AdamW": ("AdamW", {"lr": 0.01}),
    "AdamW options": ("AdamW", {"lr": torch.tensor(0.02), "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.3}),
    "AdamW maximize": ("AdamW", {"lr": 0.01, "maximize": True}),
    "Adam": ("Adam", {"lr": 0.01}),
    "Adam with L2": ("Adam", {"lr": 0.01, "weight_decay": 0.2}),
    "Adam maximize with L2": ("Adam", {"lr": 0.01, "weight_decay": 0.2, "maximize": True}),
    "SGD": ("SGD", {"lr": 0.1}),
    "SGD momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    "SGD Nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "SGD maximize": ("SGD", {"lr": 0.1, "momentum": 0.9, "maximize": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_torch(name: str) -> None:
    kind, options = CASES[name]
    theirs, ours = model(), model()
    expected = train(theirs, getattr(torch.optim, kind)(theirs.parameters(), **options), 6)
    losses = train(ours, getattr(bk, kind)(ours.parameters(), **options), 6)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("back", [False, True], ids=["from torch", "to torch"])
def test_a_state_goes_on_in_the_other(name: str, back: bool) -> None:
    kind, options = CASES[name]
    here, there = (bk, torch.optim) if back else (torch.optim, bk)
    plain, mixed = model(), model()
    whole = train(plain, (optimizer := getattr(here, kind)(plain.parameters(), **options)), 3)
    whole += train(plain, optimizer, 3, start=3)
    before = getattr(here, kind)(mixed.parameters(), **options)
    parts = train(mixed, before, 3)
    after = getattr(there, kind)(mixed.parameters(), lr=1e9)
    after.load_state_dict(before.state_dict())
    parts += train(mixed, after, 3, start=3)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    assert (
        before.state_dict()["state"][0].keys() == after.state_dict()["state"][0].keys() if "SGD" not in kind else True
    )


def test_groups_and_schedules() -> None:
    nets = model(), model()
    results = []
    for net, home in zip(nets, (torch.optim, bk), strict=True):
        groups = [{"params": net[0].parameters(), "lr": 0.1}, {"params": [*net[2].parameters()], "weight_decay": 0.5}]
        optimizer = home.AdamW(groups, lr=0.01)
        optimizer.add_param_group({"params": net[3].parameters(), "betas": (0.5, 0.9)})
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        losses = []
        for step in range(4):
            losses += train(net, optimizer, 1, start=step)
            schedule.step()
        results.append(losses)
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["AdamW", "Adam", "SGD"])
@pytest.mark.parametrize("most", [0.05, 100.0])
def test_clip_norm_is_that_of_torch_and_leaves_gradients(kind: str, most: float) -> None:
    theirs, ours = model(), model()
    plain = getattr(torch.optim, kind)(theirs.parameters(), lr=0.01)
    clipped = getattr(bk, kind)(ours.parameters(), lr=0.01, clip_norm=most)
    for net in (theirs, ours):
        net(torch.ones(2, 2, 3, 3)).square().sum().backward()
    kept = [p.grad.clone() for p in ours.parameters() if p.grad is not None]
    nn.utils.clip_grad_norm_(theirs.parameters(), most)
    plain.step()
    clipped.step()
    torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()), rtol=1e-5, atol=1e-7)
    assert all(torch.equal(p.grad, g) for p, g in zip(ours.parameters(), kept, strict=True) if p.grad is not None)


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_copies_receive_the_new_parameters(kind: str) -> None:
    net = model()
    some = {p: torch.zeros_like(p, dtype=torch.bfloat16) for p in net[2].parameters()}
    train(net, getattr(bk, kind)(net.parameters(), lr=0.1, copies=some), 2)
    for p, half in some.items():
        assert torch.equal(half, p.detach().bfloat16())


@pytest.mark.parametrize(
    ("step", "lists", "numbers", "message"),
    [
        ("adamw_", ([], []), (0.1, 1, 0.9, 0.99, 1e-8, 0.0, False), r"2 params, 2 grads, 0 states\[0\], 0 states"),
        ("lion_", ([],), (0.1, 0.9, 0.99, 0.0), r"2 params, 2 grads, 0 states\[0\]"),
        ("sgd_", ([torch.zeros(3)],), (0.1, 0.9, 1.0, 0.0, False), r"2 params, 2 grads, 1 states\[0\]"),
    ],
)
def test_a_step_without_its_states_is_refused_by_their_number(
    step: str, lists: tuple[list[torch.Tensor], ...], numbers: tuple[float, ...], message: str
) -> None:
    tensors = [torch.zeros(3), torch.zeros(3)]
    with pytest.raises(KernelShapeError, match=rf"(?s)different lengths.*given: +{message}.*leave out parameters"):
        getattr(torch.ops.burn_kernels, step)(tensors, tensors, *lists, [], None, *numbers)


def test_parameters_without_a_gradient_and_a_closure() -> None:
    net = model()
    net[0].requires_grad_(False)
    before = [p.clone() for p in net[0].parameters()]
    optimizer = bk.AdamW(net.parameters(), lr=0.1, clip_norm=1.0)
    assert optimizer.step() is None  # no gradient anywhere

    def closure() -> float:
        net(torch.ones(2, 2, 3, 3)).sum().backward()
        return 3.5

    assert optimizer.step(closure) == 3.5
    assert all(torch.equal(p, old) for p, old in zip(net[0].parameters(), before, strict=True))
    assert len(optimizer.state) == 4


ALL: dict[str, dict[str, Any]] = {
    "AdamW": {"lr": 0.1},
    "Adam": {"lr": 0.1, "weight_decay": 0.1},
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Lion": {"lr": 0.1, "weight_decay": 0.1},
}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("way", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["copy", "pickle"])
def test_copies_and_pickles_of_an_optimizer_keep_its_options(kind: str, way: Callable[[Any], Any]) -> None:
    net = model()
    half = {p: p.detach().bfloat16() for p in net[2].parameters()}
    optimizer = getattr(bk, kind)(net.parameters(), clip_norm=0.05, copies=half, **ALL[kind])
    train(net, optimizer, 2)
    other, its = way((net, optimizer))
    assert its.clip_norm == 0.05
    assert train(other, its, 2, start=2) == train(net, optimizer, 2, start=2)
    assert [tuple(p.shape) for p in its.copies] == [(5, 12), (5,)]
    assert all(torch.equal(its.copies[p], p.detach().bfloat16()) for p in other[2].parameters())
    assert all(torch.equal(half[p], p.detach().bfloat16()) for p in net[2].parameters())


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", ["AdamW", "Adam", "SGD"])
def test_a_gradient_scaler_unscales_and_leaves_out_steps_that_overflow(kind: str, fused: bool) -> None:
    # fused=True has the scaler of torch hand scaled gradients to torch's own steps, and these would take them as such
    results = []
    for home, more in ((torch.optim, {}), (bk, {"fused": True} if fused else {})):
        net = model()
        optimizer = getattr(home, kind)(net.parameters(), **ALL[kind], **more)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        for step in range(5):
            optimizer.zero_grad()
            loss = net(torch.linspace(-1.0, 1.0, 36).view(2, 2, 3, 3)).square().sum()
            scaler.scale(loss * (float("inf") if step == 2 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append((scaler.get_scale(), [p.detach() for p in net.parameters()]))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated:DeprecationWarning")  # of torch about itself
@pytest.mark.parametrize("kind", ["AdamW", *(pytest.param(kind, marks=pytest.mark.slow) for kind in list(ALL)[1:])])
def test_a_step_under_torch_compile_is_that_of_eager(kind: str) -> None:
    torch._dynamo.reset()
    losses = []
    for compiled in (False, True):
        net = model()
        optimizer = getattr(bk, kind)(net.parameters(), **ALL[kind])
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        step: Any = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
        losses_of_run = []
        for number in range(4):
            optimizer.zero_grad()
            loss = net(torch.linspace(-1.0, 1.0, 36).view(2, 2, 3, 3)).square().sum()
            loss.backward()
            step()
            losses_of_run.append(loss.item())
            if number:
                schedule.step()
        losses.append(losses_of_run)
    assert losses[0] == losses[1]
    assert len(set(losses[0])) == 4


@pytest.mark.parametrize("kind", ALL)
def test_parameters_of_many_kinds_step_as_if_each_were_alone(kind: str) -> None:
    torch.manual_seed(0)
    shapes = [(3, 4), (0, 4), (), (5,), (2, 2)]
    types = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16]
    values = [torch.randn(shape).to(dtype) for shape, dtype in zip(shapes, types, strict=True)]
    grads = [[torch.randn(x.shape).to(x.dtype) for x in values] for _ in range(3)]
    together = [nn.Parameter(x.clone()) for x in values]
    optimizer = getattr(bk, kind)(together, **ALL[kind])
    for step in grads:
        for p, grad in zip(together, step, strict=True):
            p.grad = grad.clone()
        optimizer.step()
    for index, value in enumerate(values):
        alone = nn.Parameter(value.clone())
        optimizer = getattr(bk, kind)([alone], foreach=True, **ALL[kind])
        for step in grads:
            alone.grad = step[index].clone()
            optimizer.step()
        assert torch.equal(together[index], alone)
        assert alone.numel() == 0 or not torch.equal(alone, value)


# -- Lion, which torch has not ---------------------------------------------------------------------------
def lion_by_hand(
    p: torch.Tensor, grads: list[torch.Tensor], lr: list[float], decay: float, sign: float = 1.0
) -> torch.Tensor:
    """The paper's program, in float64."""
    p, m = p.double(), torch.zeros_like(p, dtype=torch.float64)
    for rate, g in zip(lr, grads, strict=True):
        g = sign * g.double()
        update = torch.sign(0.8 * m + (1 - 0.8) * g)
        p = p - rate * (update + decay * p)
        m = 0.95 * m + (1 - 0.95) * g
    return p


@pytest.mark.parametrize("maximize", [False, True])
def test_lion_is_that_of_the_paper(maximize: bool) -> None:
    torch.manual_seed(0)
    values, rates = [torch.randn(3, 4), torch.randn(7)], [0.1, 0.1, 0.05, 0.05, 0.025]
    grads = [[torch.randn(x.shape) for x in values] for _ in rates]
    params = [nn.Parameter(x.clone()) for x in values]
    groups = [{"params": params[:1], "weight_decay": 0.3}, {"params": params[1:]}]
    optimizer = bk.Lion(groups, lr=0.1, betas=(0.8, 0.95), weight_decay=0.1, maximize=maximize)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for number, step in enumerate(grads):
        if number == 3:  # goes on from its state, in another object
            state = optimizer.state_dict()
            assert list(state["state"][0]) == ["exp_avg"]
            optimizer = bk.Lion(groups, lr=1.0)
            optimizer.load_state_dict(state)
        for group in optimizer.param_groups:
            group["lr"] = rates[number]
        for p, grad in zip(params, step, strict=True):
            p.grad = grad
        optimizer.step()
        if number < 2:
            schedule.step()
            assert optimizer.param_groups[0]["lr"] == rates[number + 1]
    for index, decay in enumerate((0.3, 0.1)):
        exact = lion_by_hand(values[index], [s[index] for s in grads], rates, decay, -1.0 if maximize else 1.0)
        torch.testing.assert_close(params[index].double(), exact, rtol=1e-5, atol=1e-6)


def test_lion_clips_copies_and_takes_a_closure() -> None:
    p = nn.Parameter(torch.ones(4))
    half = torch.zeros(4, dtype=torch.bfloat16)
    optimizer = bk.Lion([p], lr=0.25, clip_norm=1.0, copies={p: half})

    def closure() -> float:
        p.grad = torch.tensor([3.0, -4.0, 0.0, 1.0])
        return 2.5

    assert optimizer.step(closure) == 2.5
    assert p.tolist() == [0.75, 1.25, 1.0, 0.75]
    assert torch.equal(half, p.detach().bfloat16())
    clipped = torch.tensor([3.0, -4.0, 0.0, 1.0]) / (26.0**0.5 + 1e-6)
    torch.testing.assert_close(optimizer.state[p]["exp_avg"], (1 - 0.99) * clipped)


@pytest.mark.parametrize("options", [{"lr": -1.0}, {"betas": (0.9, 1.0)}, {"weight_decay": -0.1}])
def test_lion_refuses_what_is_outside(options: dict[str, Any]) -> None:
    with pytest.raises(KernelArgumentError, match=r"(?s)Lion: an option is outside.*lr and weight_decay from 0.*1e-4"):
        bk.Lion([nn.Parameter(torch.ones(1))], **options)


# -- norms of many tensors -------------------------------------------------------------------------------
@pytest.mark.parametrize("order", [1, 2.0, float("inf"), 3.0])
@pytest.mark.filterwarnings("ignore:burn_kernels. plain torch computes clip_grad_norm_. of order 3:RuntimeWarning")
def test_clip_grad_norm_is_that_of_torch(order: float) -> None:
    nets = model(), model()
    for net in nets:
        net(torch.ones(2, 2, 3, 3)).square().sum().backward()
        net[3].bias.grad = None
    norms = [
        clip(net.parameters(), 0.3, order)
        for net, clip in zip(nets, (bk.clip_grad_norm_, nn.utils.clip_grad_norm_), strict=True)
    ]
    torch.testing.assert_close(*norms)
    for ours, theirs in zip(*(net.parameters() for net in nets), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, theirs.grad)
    grads = [p.grad for p in nets[0].parameters() if p.grad is not None]
    torch.testing.assert_close(bk.get_total_norm(grads, 2.0), nn.utils.get_total_norm(grads, 2.0))


def test_clip_grad_norm_of_nothing_of_one_and_of_nan() -> None:
    assert bk.clip_grad_norm_([nn.Parameter(torch.ones(2))], 1.0) == 0.0
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.tensor([3.0, 4.0])
    assert bk.clip_grad_norm_(p, 0.0) == 5.0
    assert p.grad.tolist() == [0.0, 0.0]
    p.grad[0] = float("nan")
    assert bk.clip_grad_norm_(p, 1.0).isnan()
    with pytest.raises(KernelArgumentError, match=r"(?s)norm is not finite.*nan of 1 tensors.*finite.*check"):
        bk.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)


def test_tables_of_addresses_are_kept_and_their_tensors_are_not() -> None:
    tensor_table._TABLES.clear()
    net = model()
    optimizer = bk.AdamW(net.parameters(), lr=0.1)
    for _ in range(3):
        for p in net.parameters():
            p.grad = torch.ones_like(p) if p.grad is None else p.grad.fill_(1.0)
        optimizer.step()
    assert len(tensor_table._TABLES) == 1
    for _ in range(2 * tensor_table._MOST_KEPT):
        weight = next(net[2].parameters())
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    assert len(tensor_table._TABLES) <= tensor_table._MOST_KEPT


def test_half_parameters_keep_states_of_their_type() -> None:
    net = model().bfloat16()
    optimizer = bk.AdamW(net.parameters(), lr=0.1)
    net(torch.ones(2, 2, 3, 3, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    assert {state["exp_avg"].dtype for state in optimizer.state.values()} == {torch.bfloat16}


P = nn.Parameter(torch.ones(3))


def with_gradient(p: nn.Parameter, grad: torch.Tensor, **options: Any) -> None:
    p.grad = grad
    bk.AdamW([p], **options).step()


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            r"AdamW: an option without.*amsgrad True in group 0.*False.*torch.optim.AdamW",
            lambda: bk.AdamW([P], amsgrad=True),
        ),
        (r"SGD: an option without.*differentiable True", lambda: bk.SGD([P], differentiable=True)),
        (r"Adam: the norm to clip.*clip_norm 0.0.*above 0.*leave it out", lambda: bk.Adam([P], clip_norm=0.0)),
        (
            r"AdamW: copies that fit no parameter.*\(2,\) for \(3,\).*tensor of its shape.*bfloat16",
            lambda: bk.AdamW([P], copies={P: torch.ones(2)}),
        ),
        (
            r"a gradient without a fused form.*sparse, shape \(3,\).*dense gradients.*torch.optim",
            lambda: with_gradient(nn.Parameter(torch.ones(3)), torch.ones(3).to_sparse()),
        ),
        (
            r"a parameter with gaps.*strides \(2,\).*fills its memory.*make it anew",
            lambda: with_gradient(nn.Parameter(torch.ones(6)[::2]), torch.ones(3)),
        ),
        (
            r"a number that lies on a device.*lr or beta meta.*Python number.*float\(group",
            lambda: _number(torch.tensor(0.1, device="meta")),
        ),
    ],
)
def test_refusals(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(KernelArgumentError, match=f"(?s){message}"):
        call()


def test_a_copy_that_lies_otherwise_is_refused() -> None:
    p = nn.Parameter(torch.ones(2, 3))
    p.grad = torch.ones(2, 3)
    with pytest.raises(KernelArgumentError, match=r"(?s)lies otherwise.*strides \(1, 2\) beside \(3, 1\).*empty_like"):
        bk.AdamW([p], copies={p: torch.ones(3, 2).T}).step()


def test_a_closure_that_is_no_function_is_refused() -> None:
    optimizer = bk.Lion([nn.Parameter(torch.ones(2))])
    with pytest.raises(KernelArgumentError, match=r"given:    closure=b'no'[\s\S]*expected: a function[\s\S]*mend: "):
        optimizer.step(b"no")  # type: ignore[arg-type]
