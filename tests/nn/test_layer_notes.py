"""Errors of a layer name the layer, once, with its settings."""

from __future__ import annotations

import enum

import pytest

from burn_torch import Device, MovedError, ShapeError, Tensor, compile, nn

CPU = Device.cpu()


@pytest.mark.parametrize(
    ("layer", "shapes", "note"),
    [
        (nn.LinearConfig(3, 4), [(2, 5)], "in Linear(d_input=3, d_output=4, bias=True)"),
        (nn.MaxPool1dConfig(2), [(2, 5)], "in MaxPool1d(stride=2, kernel_size=2, padding=Valid, "),
        (nn.GroupNormConfig(2, 4), [(1, 6, 3)], "in GroupNorm(num_groups=2, num_channels=4, "),
        (nn.CrossAttentionConfig(4, 4, 2, 2, 2), [(1, 2), (1, 2, 4)], "in CrossAttention(d_model=4, "),
        (nn.Interpolate1dConfig(output_size=3), [(2, 5)], "in Interpolate1d(output_size=3, scale_factor=None, mode=Ne"),
    ],
)
def test_an_error_names_its_layer_once(layer: object, shapes: list[tuple[int, ...]], note: str) -> None:
    with pytest.raises(ShapeError, match=r"axes|fit|differ|given") as caught:
        layer.init(CPU).forward(*(Tensor.zeros(shape, CPU) for shape in shapes))  # type: ignore[attr-defined]  # a Config
    notes = [text for text in caught.value.__notes__ if text.startswith("in ")]
    assert len(notes) == 1
    assert notes[0].startswith(note)


def test_a_configuration_of_ones_own_below_ours_knows_the_names_of_its_function() -> None:
    class Kind(enum.Enum):
        Soft = "Soft"

    class SoftEluConfig(nn.EluConfig):
        kind: Kind = Kind.Soft

    assert SoftEluConfig(alpha=2.0).to_dict() == {"alpha": 2.0, "kind": "Soft"}
    assert isinstance(SoftEluConfig().init(), nn.Elu)


@pytest.mark.parametrize(("config", "shape"), [(nn.LinearConfig(2, 2), (1, 2)), (nn.BatchNormConfig(2), (1, 2, 3))])
def test_a_layer_that_was_taken_over_raises_one_error(config: object, shape: tuple[int, ...]) -> None:
    layer = config.init(CPU)  # type: ignore[attr-defined]  # a Config
    x = Tensor.zeros(shape, CPU)
    compile(lambda model, x: (model, model.forward(x).sum()), donate="model")(layer, x)
    with pytest.raises(MovedError, match=f"this {type(layer).__name__} was used after") as caught:
        layer.forward(x)
    assert caught.value.__context__ is None
