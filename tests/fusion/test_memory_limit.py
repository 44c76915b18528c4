"""A limit of memory that kernels cannot keep: planned in bounded time, told with figures, and the better plan kept."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

from burn_torch import Device, Distribution, MemoryLimitWarning, Tensor, compile
from burn_torch.fusion.planning import schedule
from burn_torch.optim import AdamWConfig, GradientsParams
from burn_torch.transform.explanation import Explanation
from examples.gpt2.gpt2 import Gpt2Config


def step(model: Any, optim: Any, x: Tensor, y: Tensor, lr: float) -> Any:
    loss = model.loss(x, y)
    grads = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, grads)
    return model, optim, loss.detach()


def planned(limit: int | None) -> Explanation:
    device = Device.cpu().autodiff()
    model = Gpt2Config(vocab_size=64, context=32, d_model=16, n_heads=2, n_layers=2, dropout=0.0).init(device)
    x, y = (Tensor.random((4, 32), Distribution.Uniform(0, 64), device).int() for _ in range(2))
    compiled = compile(step, fuse=True, donate=("model", "optim"), memory_limit_bytes=limit)
    return compiled.explain(model, AdamWConfig().init(), x, y, 0.001)


def test_a_limit_out_of_reach_is_planned_in_a_bounded_number_of_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """This step took 29 turns of nine trials each, now one; GPT-2 with 12 layers took thousands, for four minutes."""
    trials = 0
    write = schedule._write_graph

    def counted(*args: Any) -> Any:
        nonlocal trials
        trials += 1
        return write(*args)

    monkeypatch.setattr(schedule, "_write_graph", counted)
    without = planned(None)
    assert trials <= 4
    with pytest.warns(MemoryLimitWarning) as seen:
        limited = planned(1000)
    assert trials <= 4 + 100
    assert limited.peak_bytes < without.peak_bytes
    assert limited.fusion is not None
    assert limited.fusion.generated > 0
    least = re.search(r"memory_limit_bytes=1000; .* so (\d+) bytes are the least", str(seen[0].message))
    assert least is not None
    assert int(least[1]) == limited.peak_bytes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert planned(limited.peak_bytes).peak_bytes <= limited.peak_bytes
