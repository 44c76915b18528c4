"""Compiled steps over a long run: a schedule retraces nothing, many batch sizes stay bounded and right."""

from __future__ import annotations

import gc
import resource
import sys

import numpy as np
import pytest

import burn_torch
from burn_torch import Device, Module, StepScope, Tensor
from burn_torch.nn import Dropout, DropoutConfig, Linear, LinearConfig, MseLoss, Relu
from burn_torch.optim import AdamWConfig, CosineAnnealingLrSchedulerConfig, GradientsParams
from burn_torch.train import fold
from burn_torch.transform import RetraceWarning
from burn_torch.transform.program import Program

pytestmark = pytest.mark.slow

DEVICE = Device.cpu().autodiff()
WIDTH = 12


class Net(Module):
    first: Linear
    second: Linear
    dropout: Dropout
    activation: Relu

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        hidden = self.dropout.forward(self.activation.forward(self.first.forward(x)))
        return MseLoss.new().forward(self.second.forward(hidden), targets)


def fresh():
    burn_torch.seed(5)
    model = Net(
        LinearConfig(WIDTH, 2 * WIDTH).init(DEVICE),
        LinearConfig(2 * WIDTH, WIDTH).init(DEVICE),
        DropoutConfig(0.25).init(),
        Relu(),
    )
    return model, AdamWConfig(weight_decay=0.01).init()


def step(model, optim, x, targets, lr, key):
    with StepScope(key, model):
        loss = model.loss(x, targets)
        gradients = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, gradients)
    return model, optim, loss


def batch(seed, size):
    return [Tensor.from_data(seed.standard_normal((size, WIDTH), dtype=np.float32), DEVICE) for _ in range(2)]


def values(model):
    return [param.val().into_data().array for _, param in model.named_params()]


def test_2000_steps_of_a_cosine_schedule_are_one_trace_and_the_bits_of_eager(seed):
    batches = [batch(seed, 6) for _ in range(8)]
    compiled = burn_torch.compile(step, donate=("model", "optim"))
    ours, state = fresh()
    theirs, their_state = fresh()
    schedule = CosineAnnealingLrSchedulerConfig(1e-2, num_iters=2000).init()
    seen = set()
    for i in range(2000):
        rate = schedule.lr_at(i)
        seen.add(rate)
        ours, state, loss = compiled(ours, state, *batches[i % 8], rate, fold(1, i))
        theirs, their_state, their_loss = step(theirs, their_state, *batches[i % 8], rate, fold(1, i))
        if i % 250 == 0 or i == 1999:
            assert float(loss.into_scalar()) == float(their_loss.into_scalar()), i
    assert compiled.traces == 1
    assert len(seen) == 2000
    for a, b in zip(values(ours), values(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


def peak_kib() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def alive() -> tuple[int, int]:
    """How many programs, and how many objects in all, the interpreter holds."""
    gc.collect()
    objects = gc.get_objects()
    return sum(type(x) is Program for x in objects), len(objects)


@pytest.mark.parametrize("max_programs", [64, 8])
def test_30_batch_sizes_are_bounded_programs_flat_memory_and_the_bits_of_eager(seed, max_programs):
    sizes = list(range(1, 31))
    batches = {size: batch(seed, size) for size in sizes}
    compiled = burn_torch.compile(step, donate=("model", "optim"), max_programs=max_programs)
    before, _ = alive()
    states = [fresh(), fresh()]

    def turns(count):
        for turn in range(count):
            for size in sizes:
                key = fold(turn, size)
                losses = []
                for i, call in enumerate((compiled, step)):
                    *states[i], loss = call(*states[i], *batches[size], 1e-3, key)
                    losses.append(float(loss.into_scalar()))
                assert losses[0] == losses[1], (turn, size)

    with pytest.warns(RetraceWarning, match=r"traced for 8 structures"):
        turns(4)
    (programs, objects), peak = alive(), peak_kib()
    turns(4)
    (programs_later, objects_later), peak_later = alive(), peak_kib()
    kept = min(max_programs, len(sizes))
    assert programs - before == programs_later - before == kept
    assert compiled.traces == (len(sizes) if kept == len(sizes) else 8 * len(sizes))
    assert objects_later - objects < 50, "objects pile up over four more turns through the same sizes"
    assert peak_later - peak < 4096, "memory grows over four more turns through the same sizes"
    for a, b in zip(values(states[0][0]), values(states[1][0]), strict=True):
        np.testing.assert_array_equal(a, b)
