"""How layers print, and how their configurations are written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from burn_torch import Module, nn
from tests.nn.twins import CPU

SHOWN: list[tuple[Any, str]] = [
    (nn.LinearConfig(3, 4), "Linear {d_input: 3, d_output: 4, bias: true, params: 16}"),
    (
        nn.Conv2dConfig((1, 8), (3, 3)),
        (
            "Conv2d {ch_in: 1, ch_out: 8, stride: [1, 1], kernel_size: [3, 3], dilation: [1, 1], groups: 1, "
            "padding: Valid, params: 80}"
        ),
    ),
    (
        nn.Conv1dConfig(2, 4, 3, groups=2, padding=nn.PaddingConfig1d.Explicit(1, 2)),
        (
            "Conv1d {ch_in: 2, ch_out: 4, stride: 1, kernel_size: 3, dilation: 1, groups: 2, padding: Explicit(1, 2), "
            "params: 16}"
        ),
    ),
    (
        nn.ConvTranspose1dConfig((2, 4), 3),
        (
            "ConvTranspose1d {ch_in: 2, ch_out: 4, stride: 1, kernel_size: 3, dilation: 1, groups: 1, padding: 0, "
            "padding_out: 0, params: 28}"
        ),
    ),
    (
        nn.MaxPool2dConfig((2, 2), padding=nn.PaddingConfig2d.Same),
        "MaxPool2d {strides: [2, 2], kernel_size: [2, 2], padding: Same, dilation: [1, 1], ceil_mode: false}",
    ),
    (nn.AdaptiveAvgPool2dConfig((8, 8)), "AdaptiveAvgPool2d {output_size: [8, 8]}"),
    (nn.DropoutConfig(0.5), "Dropout {prob: 0.5}"),
    (nn.EmbeddingConfig(10, 4), "Embedding {n_embedding: 10, d_model: 4, params: 40}"),
    (nn.BatchNormConfig(3), "BatchNorm {num_features: 3, momentum: 0.1, epsilon: 1e-05, params: 6}"),
    (nn.PReluConfig(), "PRelu {num_parameters: 1, alpha_value: 0.25, params: 1}"),
    (nn.HardShrinkConfig(), "HardShrink {lambda: 0.5}"),
]


@pytest.mark.parametrize(("config", "text"), SHOWN, ids=[type(c).__name__ for c, _ in SHOWN])
def test_display(config: Any, text: str) -> None:
    assert str(config.init(CPU)) == text


def test_a_model_prints_as_a_tree() -> None:
    class Model(Module):
        conv1: nn.Conv2d
        linear1: nn.Linear
        activation: nn.Relu

    model = Model(nn.Conv2dConfig((1, 8), (3, 3)).init(CPU), nn.LinearConfig(8, 2).init(CPU), nn.Relu())
    assert str(model) == (
        "Model {\n"
        "  conv1: Conv2d {ch_in: 1, ch_out: 8, stride: [1, 1], kernel_size: [3, 3], dilation: [1, 1], groups: 1, "
        "padding: Valid, params: 80}\n"
        "  linear1: Linear {d_input: 8, d_output: 2, bias: true, params: 18}\n"
        "  activation: Relu\n"
        "  params: 98\n"
        "}"
    )


WRITTEN: list[tuple[Any, Any]] = [
    (nn.PaddingConfig2d.Same, "Same"),
    (nn.PaddingConfig2d.Explicit(1, 2, 3, 4), {"Explicit": [1, 2, 3, 4]}),
    (nn.ActivationConfig.Gelu, "Gelu"),
    (nn.ActivationConfig.HardShrink(nn.HardShrinkConfig()), {"HardShrink": {"lambda": 0.5}}),
    (nn.NormalizationConfig.Rms(nn.RmsNormConfig(8)), {"Rms": {"d_model": 8, "epsilon": 1e-05}}),
    (
        nn.LinearConfig(3, 4),
        {
            "d_input": 3,
            "d_output": 4,
            "bias": True,
            "initializer": {"KaimingUniform": {"gain": 3**-0.5, "fan_out_only": False}},
            "layout": "Row",
        },
    ),
    (
        nn.Interpolate2dConfig(output_size=(4, 4)),
        {"output_size": [4, 4], "scale_factor": None, "mode": "Nearest", "align_corners": True},
    ),
]


@pytest.mark.parametrize(("config", "written"), WRITTEN, ids=[type(c).__name__ for c, _ in WRITTEN])
def test_json_is_burns(config: Any, written: Any) -> None:
    assert json.loads(config.to_json()) == written
    kind = next(
        cls
        for cls in type(config).__mro__
        if cls.__name__.endswith(("Config", "1d", "2d", "Option")) and hasattr(cls, "from_json")
    )
    assert kind.from_json(json.dumps(written)) == config


def test_parameter_names_are_burns() -> None:
    named: list[tuple[Any, list[str]]] = [
        (nn.LinearConfig(2, 3), ["weight", "bias"]),
        (nn.Conv1dConfig(2, 3, 1, bias=False), ["weight"]),
        (nn.EmbeddingConfig(2, 3), ["weight"]),
        (nn.BatchNormConfig(2), ["gamma", "beta"]),
        (nn.LayerNormConfig(2, bias=False), ["gamma"]),
        (nn.PReluConfig(), ["alpha"]),
        (nn.SwiGluConfig(2, 3), ["linear_inner.weight", "linear_outer.weight"]),
    ]
    for config, names in named:
        assert [path for path, _ in config.init(CPU).named_params()] == names
