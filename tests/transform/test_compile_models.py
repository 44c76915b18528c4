"""Compiled equals eager bit for bit: whole training steps of whole models, with every optimizer and every schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import burn_torch
from burn_torch import Device, Distribution, Module, Tensor, compile
from burn_torch.nn import (
    BatchNorm,
    BatchNormConfig,
    Conv2d,
    Conv2dConfig,
    CrossEntropyLoss,
    CrossEntropyLossConfig,
    Dropout,
    DropoutConfig,
    Embedding,
    EmbeddingConfig,
    LayerNorm,
    LayerNormConfig,
    Linear,
    LinearConfig,
    Lstm,
    LstmConfig,
    MaxPool2d,
    MaxPool2dConfig,
    TransformerEncoder,
    TransformerEncoderConfig,
    TransformerEncoderInput,
)
from burn_torch.optim import (
    AdamConfig,
    AdamWConfig,
    ConstantLr,
    CosineAnnealingLrSchedulerConfig,
    ExponentialLrSchedulerConfig,
    GradientClippingConfig,
    GradientsParams,
    LinearLrSchedulerConfig,
    LrScheduler,
    MomentumConfig,
    NoamLrSchedulerConfig,
    SgdConfig,
    StepLrSchedulerConfig,
    WeightDecayConfig,
    scheduler_of,
)

STEPS = 50
TAPE = Device.cpu().autodiff()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# -- models ------------------------------------------------------------------------------------------------
class Mlp(Module):
    first: Linear
    norm: LayerNorm
    drop: Dropout
    second: Linear

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        hidden = self.drop.forward(self.norm.forward(self.first.forward(x)).relu())
        return ((self.second.forward(hidden) - y) ** 2).mean()


class Cnn(Module):
    conv1: Conv2d
    norm: BatchNorm
    conv2: Conv2d
    pool: MaxPool2d
    drop: Dropout
    head: Linear
    criterion: CrossEntropyLoss

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        x = self.norm.forward(self.conv1.forward(x)).relu()
        x = self.drop.forward(self.pool.forward(self.conv2.forward(x).relu()))
        return self.criterion.forward(self.head.forward(x.flatten(1, 3)), y)


class Transformer(Module):
    embedding: Embedding
    encoder: TransformerEncoder
    head: Linear
    criterion: CrossEntropyLoss

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        x = self.encoder.forward(TransformerEncoderInput(self.embedding.forward(x)))
        return self.criterion.forward(self.head.forward(x.mean_dim(1).squeeze_dim(1)), y)


class Recurrent(Module):
    lstm: Lstm
    head: Linear

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        _, state = self.lstm.forward(x, None)
        return ((self.head.forward(state.hidden) - y) ** 2).mean()


def random(*shape: int) -> Tensor:
    return Tensor.random(shape, Distribution.Normal(0.0, 1.0), TAPE)


def classes(count: int, *shape: int) -> Tensor:
    return Tensor.random(shape, Distribution.Uniform(0, count), TAPE).int()


def mlp() -> tuple[Mlp, Tensor, Tensor]:
    norm, drop = LayerNormConfig(7).init(TAPE), DropoutConfig(0.3).init()
    return Mlp(LinearConfig(5, 7).init(TAPE), norm, drop, LinearConfig(7, 3).init(TAPE)), random(4, 5), random(4, 3)


def cnn() -> tuple[Cnn, Tensor, Tensor]:
    model = Cnn(
        Conv2dConfig((1, 3), (3, 3)).init(TAPE),
        BatchNormConfig(3).init(TAPE),
        Conv2dConfig((3, 4), (2, 2)).init(TAPE),
        MaxPool2dConfig((2, 2)).init(),
        DropoutConfig(0.25).init(),
        LinearConfig(4 * 2 * 2, 5).init(TAPE),
        CrossEntropyLossConfig().init(TAPE),
    )
    return model, random(6, 1, 8, 8), classes(5, 6)


def transformer() -> tuple[Transformer, Tensor, Tensor]:
    model = Transformer(
        EmbeddingConfig(11, 8).init(TAPE),
        TransformerEncoderConfig(d_model=8, d_ff=16, n_heads=2, n_layers=2).init(TAPE),
        LinearConfig(8, 4).init(TAPE),
        CrossEntropyLossConfig().init(TAPE),
    )
    return model, classes(11, 3, 5), classes(4, 3)


def lstm() -> tuple[Recurrent, Tensor, Tensor]:
    return Recurrent(LstmConfig(3, 6, True).init(TAPE), LinearConfig(6, 2).init(TAPE)), random(4, 3, 3), random(4, 2)


MODELS: dict[str, Callable[[], tuple[Any, Tensor, Tensor]]] = {
    "mlp": mlp, "cnn": cnn, "transformer": transformer, "lstm": lstm,
}  # fmt: skip

# -- optimizers and schedules ---------------------------------------------------------------------------------
DECAY = WeightDecayConfig(penalty=0.01)
BY_VALUE, BY_NORM = GradientClippingConfig.Value(0.01), GradientClippingConfig.Norm(0.1)

OPTIMIZERS: dict[str, Any] = {
    "sgd": SgdConfig(),
    "sgd, decay, clipped by value": SgdConfig(weight_decay=DECAY, gradient_clipping=BY_VALUE),
    "sgd, clipped by norm": SgdConfig(gradient_clipping=BY_NORM),
    "momentum": SgdConfig(momentum=MomentumConfig()),
    "momentum, undamped, decay": SgdConfig(momentum=MomentumConfig(momentum=0.8, dampening=0.0), weight_decay=DECAY),
    "nesterov": SgdConfig(momentum=MomentumConfig(nesterov=True)),
    "nesterov, decay, clipped by norm": SgdConfig(
        momentum=MomentumConfig(momentum=0.7, dampening=0.3, nesterov=True),
        weight_decay=DECAY,
        gradient_clipping=BY_NORM,
    ),
    "adam": AdamConfig(),
    "adam, decay, amsgrad": AdamConfig(weight_decay=DECAY, amsgrad=True),
    "adam, clipped by value": AdamConfig(beta_1=0.5, epsilon=1e-8, grad_clipping=BY_VALUE),
    "adamw": AdamWConfig(),
    "adamw, amsgrad, clipped by norm": AdamWConfig(amsgrad=True, weight_decay=0.1, grad_clipping=BY_NORM),
    "adamw, cautious": AdamWConfig(cautious_weight_decay=True, weight_decay=0.1),
    "adamw, cautious, amsgrad, clipped by value": AdamWConfig(
        cautious_weight_decay=True, amsgrad=True, grad_clipping=BY_VALUE
    ),
    "adamw, no decay": AdamWConfig(weight_decay=0.0),
}

SCHEDULES: dict[str, Callable[[], LrScheduler]] = {
    "constant": lambda: ConstantLr(0.01),
    "cosine": lambda: scheduler_of(CosineAnnealingLrSchedulerConfig(0.05, 20)),
    "exponential": lambda: scheduler_of(ExponentialLrSchedulerConfig(0.05, 0.95)),
    "linear": lambda: scheduler_of(LinearLrSchedulerConfig(0.05, 0.001, 40)),
    "noam": lambda: scheduler_of(NoamLrSchedulerConfig(0.1, warmup_steps=10, model_size=16)),
    "step": lambda: scheduler_of(StepLrSchedulerConfig(0.05, 7)),
}


# -- comparing --------------------------------------------------------------------------------------------------
def bits(x: Tensor) -> bytes:
    return (x.inner() if x.device.is_autodiff() else x).into_data().to_bytes()


@dataclass
class Run:
    """Holds what 50 steps leave: losses, parameters, running states, states of the optimizer."""

    losses: list[bytes]
    params: dict[str, bytes]
    states: dict[str, bytes]
    optimizer: list[tuple[int, dict[str, bytes]]]


def outcome(losses: list[Tensor], model: Any, optim: Any) -> Run:
    record = optim.to_record().states
    return Run(
        [bits(loss) for loss in losses],
        {path: bits(param.val()) for path, param in model.named_params()},
        {path: bits(state.value()) for path, state in model.named_states()},
        [(time, {name: bits(x) for name, x in slots.items()}) for time, slots in record.values()],
    )


def training_step(model: Any, optim: Any, x: Tensor, y: Tensor, lr: float) -> tuple[Any, Any, Tensor]:
    loss = model.loss(x, y)
    grads = GradientsParams.from_grads(loss.backward(), model)
    model, optim = optim.step(lr, model, grads)
    return model, optim, loss.detach()


def trained(step: Any, name: str, optimizer: str, schedule: str, steps: int = STEPS) -> Run:
    burn_torch.seed(11)
    model, x, y = MODELS[name]()
    optim, scheduler, losses = OPTIMIZERS[optimizer].init(), SCHEDULES[schedule](), []
    burn_torch.seed(12)
    for _ in range(steps):
        model, optim, loss = step(model, optim, x, y, scheduler.step())
        losses.append(loss)
    return outcome(losses, model, optim)


def require_equal(name: str, optimizer: str, schedule: str) -> None:
    compiled = compile(training_step, donate=("model", "optim"))
    actual, wanted = trained(compiled, name, optimizer, schedule), trained(training_step, name, optimizer, schedule)
    assert compiled.traces == 1
    assert len(set(wanted.losses)) > STEPS // 2  # it learns something: the comparison is of numbers that change
    assert actual == wanted


@pytest.mark.parametrize("name", MODELS)
def test_fifty_steps_of_a_model_have_the_bits_of_eager(name: str) -> None:
    require_equal(name, "adamw, amsgrad, clipped by norm", "cosine")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fifty_steps_of_an_optimizer_have_the_bits_of_eager(optimizer: str) -> None:
    require_equal("mlp", optimizer, "cosine")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_fifty_steps_of_a_schedule_have_the_bits_of_eager_in_one_trace(schedule: str) -> None:
    require_equal("mlp", "adam", schedule)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", [name for name in MODELS if name != "mlp"])
def test_every_optimizer_trains_every_model_with_the_bits_of_eager(name: str, optimizer: str) -> None:
    require_equal(name, optimizer, "noam")


# -- two models, two optimizers ----------------------------------------------------------------------------------
class Player(Module):
    first: Linear
    norm: BatchNorm | None
    drop: Dropout
    second: Linear

    def forward(self, x: Tensor) -> Tensor:
        x = self.first.forward(x)
        x = x if self.norm is None else self.norm.forward(x)
        return self.second.forward(self.drop.forward(x.relu()))


def gan_step(
    generator: Player, critic: Player, optim_g: Any, optim_c: Any, noise: Tensor, real: Tensor, lr: float
) -> tuple[Any, ...]:
    """One update of each, the critic first: least squares GAN."""
    fake = generator.forward(noise).detach()
    loss_c = ((critic.forward(real) - 1.0) ** 2).mean() + (critic.forward(fake) ** 2).mean()
    critic, optim_c = optim_c.step(lr, critic, GradientsParams.from_grads(loss_c.backward(), critic))
    loss_g = ((critic.forward(generator.forward(noise)) - 1.0) ** 2).mean()
    generator, optim_g = optim_g.step(lr * 0.5, generator, GradientsParams.from_grads(loss_g.backward(), generator))
    return generator, critic, optim_g, optim_c, loss_g.detach(), loss_c.detach()


def gan(step: Any, optimizer: str) -> tuple[Run, Run]:
    burn_torch.seed(21)
    drop = DropoutConfig(0.2).init()
    generator = Player(
        LinearConfig(3, 6).init(TAPE), BatchNormConfig(6).init(TAPE), drop, LinearConfig(6, 4).init(TAPE)
    )
    critic = Player(LinearConfig(4, 6).init(TAPE), None, drop, LinearConfig(6, 1).init(TAPE))
    state = (generator, critic, OPTIMIZERS[optimizer].init(), OPTIMIZERS[optimizer].init())
    losses_g, losses_c = [], []
    for i in range(STEPS):
        burn_torch.seed(100 + i)
        *states, loss_g, loss_c = step(*state, random(8, 3), random(8, 4), 0.02 * 0.98**i)
        state = tuple(states)
        losses_g.append(loss_g)
        losses_c.append(loss_c)
    return outcome(losses_g, state[0], state[2]), outcome(losses_c, state[1], state[3])


@pytest.mark.parametrize("optimizer", ["adam", "nesterov, decay, clipped by norm"])
def test_a_step_of_two_models_that_play_against_each_other_has_the_bits_of_eager(optimizer: str) -> None:
    compiled = compile(gan_step, donate=("generator", "critic", "optim_g", "optim_c"))
    actual, wanted = gan(compiled, optimizer), gan(gan_step, optimizer)
    assert actual == wanted
    assert compiled.traces <= 2  # the first with fresh optimizers, whose models nobody can tell
    assert len(set(wanted[0].losses)) == STEPS
