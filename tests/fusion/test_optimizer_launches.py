"""The optimizer of a model of 148 tensors is one launch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton")

from burn_kernels import optimizer  # after the check for triton
from burn_kernels.launch import H200, recording
from burn_torch import Device, Distribution, Tensor, compile, explain
from burn_torch.backend.libtorch.attached.table import device_form
from burn_torch.backend.libtorch.forms.numbers import RUN_TIME
from burn_torch.core.dtype import DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.op import REGISTRY
from burn_torch.optim import AdamWConfig, GradientClippingConfig, GradientsParams
from burn_torch.transform.explanation import Explanation
from examples.gpt2.gpt2 import Gpt2Config
from tests.fusion.blocks import BLOCKS, TINY

SHAPES = [(50257, 768), (1024, 768), *[(768,)] * 2]
SHAPES += [
    *[(768,)] * 4, (768, 2304), (2304,), (768, 768), (768,), (768, 3072), (3072,), (3072, 768), (768,),
] * 12  # fmt: skip
"""The shapes of the parameters of GPT-2 with 124 million weights."""


def step(model: Any, optim: Any, x: Tensor, y: Tensor, lr: float) -> Any:
    loss = model.loss(x, y)
    grads = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, grads)
    return model, optim, loss.detach()


def planned(layers: int, optim: Any) -> tuple[int, Explanation]:
    """The model in small, as compiled and fused; how many tensors it has."""
    device = Device.cpu().autodiff()
    model = Gpt2Config(vocab_size=64, context=16, d_model=16, n_heads=2, n_layers=layers, dropout=0.0).init(device)
    x, y = (Tensor.random((2, 16), Distribution.Uniform(0, 64), device).int() for _ in range(2))
    compiled = compile(step, fuse=True, donate=("model", "optim"))
    return len(list(model.named_params())), explain(compiled, model, optim.init(), x, y, 0.001)


def test_all_tensors_are_one_update() -> None:
    count, explanation = planned(12, AdamWConfig(weight_decay=0.1))
    assert count == 148
    updates = [node for node in explanation.graph.nodes if node.call.op.runs is not None]
    assert [node.call.op.name for node in updates] == ["adam_update"]
    assert sum(isinstance(spec, TensorSpec) for spec in updates[0].call.specs) == 4 * 148
    assert explanation.fusion is not None
    assert sum("update" in kernel.name for kernel in explanation.fusion.kernels) == 1


def test_clipping_each_tensor_by_its_norm_is_a_few_launches_for_all() -> None:
    """Not some for each of the 28 tensors: those that wait for nothing run side by side."""
    clipped = AdamWConfig(grad_clipping=GradientClippingConfig.Norm(1.0))
    (_, plain), (count, with_clips) = planned(2, AdamWConfig()), planned(2, clipped)
    assert count == 28
    assert plain.fusion is not None
    assert with_clips.fusion is not None
    assert len(with_clips.fusion.kernels) - len(plain.fusion.kernels) <= 12


def test_the_update_is_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the learning rate and the time on the device, as a recorded program has them."""
    assert len(SHAPES) == 148
    assert sum(torch.Size(shape).numel() for shape in SHAPES) == 124_439_808
    monkeypatch.setattr(optimizer, "staging_for", lambda params: None)  # pinned memory needs a device
    known = [RUN_TIME, 0.9, 0.999, 1e-8, 0.0, 0.1, RUN_TIME, *[None] * (4 * 148)]
    specs = [TensorSpec.of(shape, DType.F32, "cuda:0") for shape in SHAPES] * 4
    numbers = [type_of(value) for value in (0.1, 0.9, 0.999, 1e-8, 0.0, 0.1, 3)]
    call = REGISTRY["adam_update"].bind([*numbers, *specs], {"amsgrad": False, "cautious": False})
    form = device_form(call, known)
    assert form is not None
    slots = [torch.empty((), device="meta") for _ in form.dtypes]
    others = [value for value in known if value is not RUN_TIME and value is not None]
    tensors = [torch.empty(shape, device="meta") for _ in range(4) for shape in SHAPES]
    with recording(H200) as launches:
        form.compute(*slots, *others, *tensors)
    (launch,) = launches
    chunks = sum(-(-torch.Size(shape).numel() // optimizer.CHUNK) for shape in SHAPES)
    config = optimizer.default(H200)
    assert launch.grid == (chunks * (optimizer.CHUNK // config.block),)


class Fills(TorchDispatchMode):
    """Counts what fills memory with a number."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ in ("zeros", "zeros_like", "new_zeros", "full", "fill_", "zero_")
        return func(*args, **(kwargs or {}))


def test_a_step_fills_what_its_plan_says_and_the_first_one_the_state_too() -> None:
    """Moments of 4 tensors, made before the first step, are no part of the program that runs in all of them."""
    block = BLOCKS["loss and optimizer"]
    arguments = block.make(Device.cpu().autodiff(), TINY)
    compiled = compile(block.step, fuse=True)
    compiled(*arguments)
    counts = []
    for _ in range(3):
        with Fills() as seen:
            results = compiled(*arguments)
        counts.append(seen.count)
        arguments = block.then(arguments, results)
    explanation = compiled.explain(*arguments).fusion
    assert explanation is not None
    planned = sum(
        kernel.name in ("full", "adam_update") for kernel in explanation.kernels
    )  # torch's update has its time in one
    assert counts == [planned + 2 * 4, planned, planned]


def type_of(value: float) -> Any:
    from burn_torch.core.spec import NUMBER_SPECS

    return NUMBER_SPECS[type(value)]
