"""The steps that are timed: each with our model, its twin in torch, and how the weights go from one to the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

import burn_torch
from benchmarks._steps.measure import Bar
from burn_torch import Device, Module, Tensor
from burn_torch.cli.recipes.mnist import MnistModel
from burn_torch.nn import (
    AdaptiveAvgPool2dConfig,
    Conv2dConfig,
    CrossEntropyLoss,
    DropoutConfig,
    Linear,
    LinearConfig,
    Lstm,
    LstmConfig,
    MseLoss,
    Relu,
    TransformerEncoder,
    TransformerEncoderConfig,
    TransformerEncoderInput,
)
from examples.gpt2.gpt2 import Gpt2Config

__all__ = [
    "COMPILED",
    "EAGER",
    "GRAPH",
    "MODES_SECONDS",
    "Adam",
    "Case",
    "all_cases",
    "layers_of_gpt2",
    "scale_of",
    "values_of",
]

Array = NDArray[Any]
Layout = Callable[[Mapping[str, Array]], dict[str, Array]]

EAGER, COMPILED = "burn_torch eager", "burn_torch compiled"
BATCHES = 16


@dataclass(frozen=True)
class Adam:
    """Adam, or AdamW where `decay` is not None: the same numbers on every side."""

    lr: float
    decay: float | None = None
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8


@dataclass(frozen=True)
class Case:
    """One step: `model(device)` with a method `loss(*batch)`, and `twin()` whose forward gives the same loss.

    layout    from our parameters by path to the twin's state
    batches   arrays; all steps go through them in turn
    optimizer None: forward and backward alone
    tolerance how far losses of two variants may be apart; with TF32 products, 10 bits, at least 5e-3
    by_hand   further rivals: from parameters (our layout, requiring gradients) and a batch to loss and gradients
    drawn     a parameter's first value by path and shape, where the model's own initializers would take too long
    random    the losses of two variants differ, as they draw other numbers
    memory_limit_bytes   what our compiled and fused step may plan, its arguments included: the bar of memory, less what
              libraries take
    """

    name: str
    model: Callable[[Device], Any]
    twin: Callable[[], torch.nn.Module]
    layout: Layout
    batches: list[tuple[Array, ...]]
    optimizer: Adam | None
    rivals: tuple[str, ...]
    bars: tuple[Bar, ...] = ()
    half: bool = False
    random: bool = False
    tolerance: float = 1e-5
    by_hand: Mapping[str, Callable[..., Any]] | None = None
    jax: str = ""
    visit_s: float = 0.02
    judged_trace: bool = False
    drawn: Callable[[np.random.Generator, str, tuple[int, ...]], Array] | None = None
    memory_limit_bytes: int | None = None


def all_cases(device: str, tiny: bool) -> dict[str, list[Case]]:
    """The groups of cases for a device, in the order in which they are worth their time."""
    on_cpu = device == "cpu"
    groups = {"mnist": mnist(device, tiny), "mlp": mlp(judged=on_cpu)}
    groups["gpt2"] = [gpt2(tiny)] if tiny or not on_cpu else []
    groups["sequence"] = [encoder(), lstm()] if on_cpu else []
    return groups


TORCH = "torch eager"
MODULE, BY_HAND = "nn.Sequential + backward", "addmm + autograd.grad"
COMPILE, REDUCED = "torch.compile", "torch.compile reduce-overhead"
GRAPH, COMPILE_GRAPH = "torch hand-captured graph", "torch.compile + hand-captured graph"
MODES_SECONDS = {COMPILE: (60.0, 30.0), REDUCED: (60.0, 15.0), COMPILE_GRAPH: (60.0, 15.0)}
"""Holds what compiling may take, on a CPU and on a GPU: with less time left a variant is left out."""
RIVALS = (TORCH, COMPILE, REDUCED, GRAPH, COMPILE_GRAPH)


def batches_of(draw: Callable[[np.random.Generator], tuple[Array, ...]], count: int = BATCHES) -> list[Any]:
    rng = np.random.default_rng(1)
    return [draw(rng) for _ in range(count)]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, dtype=np.float32)


def turned(values: Mapping[str, Array], names: Mapping[str, str]) -> dict[str, Array]:
    """Our arrays under the twin's names; weights of linear layers, marked by a trailing T, turned."""
    weights = {}
    for theirs, ours in names.items():
        weights[theirs] = values[ours.removesuffix(" T")]
        if ours.endswith(" T"):
            weights[theirs] = np.ascontiguousarray(weights[theirs].T)
    return weights


# -- the MLP --------------------------------------------------------------------------------------------
LAYERS, WIDTH, MLP_BATCH = 8, 32, 16


class Mlp(Module):
    """Eight layers, 32 wide, ReLU after each."""

    linears: tuple[Linear, ...]
    activation: Relu

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.linears:
            x = self.activation.forward(layer.forward(x))
        return x

    def loss(self, x: Tensor, *targets: Tensor) -> Tensor:
        y = self.forward(x)
        return MseLoss.new().forward(y, targets[0]) if targets else y.sum_dims((0, 1))


class MlpTwin(torch.nn.Sequential):
    """The same of torch; with targets the mean squared distance."""

    def __init__(self) -> None:
        super().__init__(*[m for _ in range(LAYERS) for m in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())])

    def forward(self, x: torch.Tensor, *targets: torch.Tensor) -> torch.Tensor:
        y = x
        for layer in self:
            y = layer(y)
        return F.mse_loss(y, targets[0]) if targets else y.sum()


def mlp_by_hand(leaves: Mapping[str, torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """The kernels alone: no module, no hooks, no `.grad` fields."""
    params = list(leaves.values())
    y = x
    for i in range(0, 2 * LAYERS, 2):
        y = torch.relu(torch.addmm(params[i + 1], y, params[i]))
    loss = y.sum()
    return loss, torch.autograd.grad(loss, params)


def mlp(judged: bool) -> list[Case]:
    def model(device: Device) -> Mlp:
        return Mlp(tuple(LinearConfig(WIDTH, WIDTH).init(device) for _ in range(LAYERS)), Relu())

    names = {f"{2 * i}.weight": f"linears.{i}.weight T" for i in range(LAYERS)}
    names |= {f"{2 * i}.bias": f"linears.{i}.bias" for i in range(LAYERS)}

    def layout(values: Mapping[str, Array]) -> dict[str, Array]:
        return turned(values, names)

    forward_backward = Case(
        name="MLP 8x32 b16, forward + backward",
        model=model,
        twin=MlpTwin,
        layout=layout,
        batches=batches_of(lambda rng: (normal(rng, MLP_BATCH, WIDTH),)),
        optimizer=None,
        rivals=(MODULE, COMPILE, REDUCED, GRAPH, COMPILE_GRAPH),
        bars=(Bar(0.5, MODULE), Bar(0.65, BY_HAND)) if judged else (),
        by_hand={BY_HAND: mlp_by_hand},
        jax="mlp",
        visit_s=0.005,
    )
    step = Case(
        name="MLP 8x32 b16, step with AdamW",
        model=model,
        twin=MlpTwin,
        layout=layout,
        batches=batches_of(lambda rng: (normal(rng, MLP_BATCH, WIDTH), normal(rng, MLP_BATCH, WIDTH))),
        optimizer=Adam(1e-3, decay=0.01),
        rivals=RIVALS,
        bars=(Bar(0.55, TORCH),) if judged else (),
        jax="mlp",
        visit_s=0.005,
    )
    return [forward_backward, step]


# -- the network of the Burn book's guide -----------------------------------------------------------------
class GuideStep(Module):
    """The guide's network with its loss."""

    model: MnistModel

    def loss(self, images: Tensor, targets: Tensor) -> Tensor:
        return CrossEntropyLoss.new(None, images.device).forward(self.model.forward(images), targets)


class GuideTwin(torch.nn.Module):
    """The guide's network in torch."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 8, 3), torch.nn.Conv2d(8, 16, 3)
        self.pool = torch.nn.AdaptiveAvgPool2d((8, 8))
        self.dropout = torch.nn.Dropout(dropout) if dropout else torch.nn.Identity()
        self.linear1, self.linear2 = torch.nn.Linear(16 * 8 * 8, 512), torch.nn.Linear(512, 10)

    def forward(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.conv2(self.dropout(self.conv1(images.unsqueeze(1))))
        x = self.pool(F.relu(self.dropout(x)))
        x = F.relu(self.dropout(self.linear1(x.flatten(1))))
        return F.cross_entropy(self.linear2(x), targets)


def mnist(device: str, tiny: bool) -> list[Case]:
    linear = {
        f"{name}.{part}": f"model.{name}.{part}" for name in ("linear1", "linear2") for part in ("weight", "bias")
    }
    names = {f"{name}.{part}": f"model.{name}.{part}" for name in ("conv1", "conv2") for part in ("weight", "bias")}
    names |= {theirs: ours + (" T" if ours.endswith("weight") else "") for theirs, ours in linear.items()}

    def model(device: Device, dropout: float) -> GuideStep:
        return GuideStep(
            MnistModel(
                Conv2dConfig((1, 8), (3, 3)).init(device),
                Conv2dConfig((8, 16), (3, 3)).init(device),
                AdaptiveAvgPool2dConfig((8, 8)).init(),
                DropoutConfig(dropout).init(),
                LinearConfig(16 * 8 * 8, 512).init(device),
                LinearConfig(512, 10).init(device),
                Relu(),
            )
        )

    def case(batch: int, dropout: float, *bars: Bar) -> Case:
        count = 2 if tiny else BATCHES
        return Case(
            name=f"MNIST CNN b{batch}, {'dropout' if dropout else 'no dropout'}",
            model=lambda device: model(device, dropout),
            twin=lambda: GuideTwin(dropout),
            layout=lambda values: turned(values, names),
            batches=batches_of(lambda rng: (normal(rng, batch, 28, 28), rng.integers(0, 10, batch)), count),
            optimizer=Adam(1e-4),
            rivals=RIVALS,
            bars=bars,
            random=dropout > 0,
            jax="mnist dropout" if dropout else "mnist",
            visit_s=0.03,
            judged_trace=batch == 64 and not dropout and device == "cpu",
        )

    small, large = (8, 16) if tiny else (64, 512)
    if device == "cuda":
        return [
            case(small, 0.5, Bar(0.9, GRAPH), Bar(1.0, "JAX jit", goal=True)),
            case(large, 0.5, Bar(0.95, GRAPH), Bar(1.0, "JAX jit", goal=True)),
            case(small, 0.0),
        ]
    return [case(small, 0.5, Bar(0.9, TORCH)), case(small, 0.0, Bar(1.0, TORCH)), case(large, 0.5), case(large, 0.0)]


# -- GPT-2 ------------------------------------------------------------------------------------------------
class Gpt2Twin(torch.nn.Module):
    """GPT-2 in torch as its users write it."""

    def __init__(self, layers: int, d_model: int, heads: int, vocab: int, context: int) -> None:
        super().__init__()
        nn, d = torch.nn, d_model
        self.heads = heads
        self.tokens, self.positions = nn.Embedding(vocab, d), nn.Embedding(context, d)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm_1": nn.LayerNorm(d),
                    "qkv": nn.Linear(d, 3 * d),
                    "projection": nn.Linear(d, d),
                    "norm_2": nn.LayerNorm(d),
                    "inner": nn.Linear(d, 4 * d),
                    "outer": nn.Linear(4 * d, d),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(d)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        batch, seq = tokens.shape
        x = self.tokens(tokens) + self.positions(torch.arange(seq, device=tokens.device))
        for block in self.blocks:
            assert isinstance(block, torch.nn.ModuleDict)
            packed = block["qkv"](block["norm_1"](x)).view(batch, seq, 3, self.heads, -1)
            query, key, value = packed.permute(2, 0, 3, 1, 4)
            read = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + block["projection"](read.transpose(1, 2).reshape(batch, seq, -1))
            x = x + block["outer"](F.gelu(block["inner"](block["norm_2"](x)), approximate="tanh"))
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(batch * seq, -1), targets.view(-1))


def gpt2(tiny: bool) -> Case:
    """124 million parameters, 16 x 1024 tokens, bf16 products over float32 parameters; vocabulary rounded up to 64s."""
    sizes = (2, 32, 2, 512, 32, 2) if tiny else (12, 768, 12, 50304, 1024, 16)
    # the limit is 0.7 of what torch.compile takes, less 270 MiB
    return _gpt2("tiny" if tiny else "124M", sizes, None if tiny else 5_740 << 20)


def layers_of_gpt2(layers: int, tiny: bool) -> Case:
    """The same with few layers, words and tokens."""
    sizes = (layers, 32, 2, 512, 32, 2) if tiny else (layers, 768, 12, 8192, 512, 8)
    return _gpt2(f"of {layers} layers", sizes, None)


def _gpt2(name: str, sizes: tuple[int, ...], memory_limit_bytes: int | None) -> Case:
    layers, d, heads, vocab, context, batch = sizes
    config = Gpt2Config(vocab_size=vocab, context=context, d_model=d, n_heads=heads, n_layers=layers, dropout=0.0)

    def layout(values: Mapping[str, Array]) -> dict[str, Array]:
        names = {"tokens.weight": "tokens.weight", "positions.weight": "positions"}
        for ours in values:
            if "norm" in ours:
                names[ours.replace("gamma", "weight").replace("beta", "bias")] = ours
            elif ours.startswith("blocks"):
                names[ours] = ours + (" T" if ours.endswith("weight") else "")
        return turned(values, names)

    def drawn(rng: np.random.Generator, path: str, shape: tuple[int, ...]) -> Array:
        if len(shape) == 1:
            return np.full(shape, float(path.endswith("gamma")), np.float32)
        last = path.endswith(("projection.weight", "outer.weight"))
        return normal(rng, *shape) * np.float32(0.02 / math.sqrt(2 * layers) if last else 0.02)

    def draw(rng: np.random.Generator) -> tuple[Array, ...]:
        text = rng.integers(0, vocab, (batch, context + 1))
        return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])

    return Case(
        name=f"GPT-2 {name} {batch}x{context}",
        model=config.init,
        twin=lambda: Gpt2Twin(layers, d, heads, vocab, context),
        layout=layout,
        batches=batches_of(draw, 4),
        optimizer=Adam(3e-4, decay=0.1, beta_2=0.95),
        rivals=(TORCH, COMPILE, COMPILE_GRAPH),
        bars=(Bar(1 / 1.05, TORCH), Bar(0.95, TORCH, of="peak_mib"), Bar(1 / 1.15, COMPILE, goal=True),
              Bar(0.7, COMPILE, of="peak_mib", goal=True)),
        half=True,
        drawn=drawn,
        jax=f"gpt2 {heads}",
        tolerance=1e-2,  # bf16 has 8 bits; sums of it go through in another order
        visit_s=0.2,
        memory_limit_bytes=memory_limit_bytes,
    )  # fmt: skip


# -- sequences --------------------------------------------------------------------------------------------
class EncoderStep(Module):
    """A transformer encoder; the loss is the mean squared distance to the targets."""

    encoder: TransformerEncoder

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        return MseLoss.new().forward(self.encoder.forward(TransformerEncoderInput(x)), targets)


class EncoderTwin(torch.nn.Module):
    """The same of torch."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(
            D_MODEL, 8, 4 * D_MODEL, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.encoder(x), targets)


D_MODEL = 64


def encoder() -> Case:
    def layout(values: Mapping[str, Array]) -> dict[str, Array]:
        weights = {}
        for i in range(2):
            ours, theirs = f"encoder.layers.{i}", f"encoder.layers.{i}"
            parts = [f"{ours}.mha.{name}" for name in ("query", "key", "value")]
            weights[f"{theirs}.self_attn.in_proj_weight"] = np.concatenate([values[f"{p}.weight"].T for p in parts])
            weights[f"{theirs}.self_attn.in_proj_bias"] = np.concatenate([values[f"{p}.bias"] for p in parts])
            names = {"self_attn.out_proj": "mha.output", "linear1": "pwff.linear_inner", "linear2": "pwff.linear_outer"}
            for name, own in names.items():
                weights[f"{theirs}.{name}.weight"] = np.ascontiguousarray(values[f"{ours}.{own}.weight"].T)
                weights[f"{theirs}.{name}.bias"] = values[f"{ours}.{own}.bias"]
            for name in ("1", "2"):
                weights[f"{theirs}.norm{name}.weight"] = values[f"{ours}.norm_{name}.gamma"]
                weights[f"{theirs}.norm{name}.bias"] = values[f"{ours}.norm_{name}.beta"]
        return weights

    return Case(
        name="transformer encoder 2x64, 8x32 tokens",
        model=lambda device: EncoderStep(
            TransformerEncoderConfig(D_MODEL, 4 * D_MODEL, 8, 2, dropout=0.0).init(device)
        ),
        twin=EncoderTwin,
        layout=layout,
        batches=batches_of(lambda rng: (normal(rng, 8, 32, D_MODEL), normal(rng, 8, 32, D_MODEL))),
        optimizer=Adam(1e-3, decay=0.01),
        rivals=RIVALS,
        tolerance=1e-4,
    )


class LstmStep(Module):
    """An LSTM; the loss is the mean squared distance of all its hidden states to the targets."""

    lstm: Lstm

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        return MseLoss.new().forward(self.lstm.forward(x)[0], targets)


class LstmTwin(torch.nn.Module):
    """The same of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(32, 64, batch_first=True)

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.lstm(x)[0], targets)


def lstm() -> Case:
    def layout(values: Mapping[str, Array]) -> dict[str, Array]:
        weights = {}
        for part, name in (("input_transform", "ih"), ("hidden_transform", "hh")):
            paths = [f"lstm.{gate}.{part}" for gate in ("input_gate", "forget_gate", "cell_gate", "output_gate")]
            weights[f"lstm.weight_{name}_l0"] = np.concatenate([values[f"{path}.weight"].T for path in paths])
            weights[f"lstm.bias_{name}_l0"] = np.concatenate([values[f"{path}.bias"] for path in paths])
        return weights

    return Case(
        name="LSTM 32 to 64, 16x24 steps",
        model=lambda device: LstmStep(LstmConfig(32, 64, True).init(device)),
        twin=LstmTwin,
        layout=layout,
        batches=batches_of(lambda rng: (normal(rng, 16, 24, 32), normal(rng, 16, 24, 64))),
        optimizer=Adam(1e-3, decay=0.01),
        rivals=(TORCH, COMPILE),
        tolerance=1e-4,
    )


def values_of(case: Case) -> dict[str, Array]:
    """The weights that every variant of a case starts from, by our paths."""
    burn_torch.seed(3)
    model = case.model(Device.cpu())
    if case.drawn is not None:
        rng = np.random.default_rng(3)
        return {path: case.drawn(rng, path, param.shape) for path, param in model.named_params()}
    arrays = {path: param.val().into_data().array for path, param in model.named_params()}
    assert sum(a.size for a in arrays.values()) == model.num_params()
    return arrays


def scale_of(values: Mapping[str, Array]) -> str:
    """The number of parameters in words."""
    count = sum(a.size for a in values.values())
    digits = max(0, int(math.log10(max(count, 1))))
    return f"{count / 1e6:.1f} million parameters" if digits > 5 else f"{count:,} parameters"
