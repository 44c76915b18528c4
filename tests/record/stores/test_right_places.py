"""Values of a PyTorch file go where they belong, or an error says which do not: lists, layers, prefixes, views."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from burn_torch import Device, Module, Param, RecordError, Tensor, nn
from burn_torch.module.twins import Twin
from burn_torch.record.stores import PytorchStore
from burn_torch.record.stores.adapter import _Twins

CPU = Device.cpu()


class One(Module):
    """One value."""

    w: Param


class Layers(Module):
    """A list of layers."""

    layers: tuple[nn.Linear, ...]


class Derived(nn.Linear):
    """A layer of the library, under another name."""


class Linear(Module):
    """A class of somebody else, whose matrix lies as it lies in the file."""

    weight: Param


class LayerNorm(Module):
    """A layer of another library, with both names that the library's has in one place or another."""

    gamma: Param
    weight: Param


class Holder(Module):
    """Holds what holds a layer."""

    layer: Module


def zeros(*shape):
    return Param(Tensor.zeros(shape, CPU))


def store(folder, values, **options):
    torch.save(values, folder / "values.pt")
    opened = PytorchStore.from_file(folder / "values.pt")
    for name, value in options.items():
        opened = getattr(opened, name)(value)
    return opened


def layers(count):
    return Layers(tuple(nn.LinearConfig(2, 2, bias=False).init(CPU) for _ in range(count)))


def numbered(*numbers):
    return {f"layers.{n}.weight": torch.full((2, 2), float(n)) for n in numbers}


SQUARE = torch.arange(9.0).reshape(3, 3)


def test_a_layer_derived_from_linear_is_turned_as_linear_is(tmp_path):
    plain = nn.LinearConfig(3, 3, bias=False).init(CPU)
    for layer in (plain, Derived(plain.weight, None)):
        loaded, _ = Holder(layer).load_from(store(tmp_path, {"layer.weight": SQUARE}))
        assert loaded.layer.weight.val().tolist() == SQUARE.T.tolist()
        assert type(loaded.layer) is type(layer)


def test_a_class_of_somebody_else_that_is_called_linear_is_not_turned(tmp_path):
    loaded, _ = Holder(Linear(zeros(3, 3))).load_from(store(tmp_path, {"layer.weight": SQUARE}))
    assert loaded.layer.weight.val().tolist() == SQUARE.tolist()


def test_names_of_somebody_elses_norm_are_its_own(tmp_path):
    values = {"layer.gamma": torch.full((3,), 2.0), "layer.weight": torch.ones(3)}
    loaded, _ = Holder(LayerNorm(zeros(3), zeros(3))).load_from(store(tmp_path, values))
    assert loaded.layer.gamma.val().tolist() == [2, 2, 2]
    assert loaded.layer.weight.val().tolist() == [1, 1, 1]


def test_one_value_of_a_file_is_not_read_for_two(tmp_path, monkeypatch):
    monkeypatch.setattr(_Twins, "twins", lambda self, place: (Twin("shared"),))
    values = {"shared": torch.ones(3)}
    with pytest.raises(RecordError, match=r"layer\.weight is shared of the file, and so is layer\.gamma"):
        Holder(LayerNorm(zeros(3), zeros(3))).load_from(store(tmp_path, values))
    tied = zeros(3)
    loaded, _ = Holder(LayerNorm(tied, tied)).load_from(store(tmp_path, values))
    assert loaded.layer.gamma.val().tolist() == [1, 1, 1]


@pytest.mark.parametrize(("numbers", "count"), [((0, 2, 4), 4), ((0, 2, 5), 4), ((1, 4), 3), ((3,), 2)])
def test_part_of_a_list_with_gaps_is_not_guessed(tmp_path, numbers, count):
    with pytest.raises(RecordError, match=r"numbers have gaps[\s\S]*layers: [\s\S]*in the module[\s\S]*mend"):
        layers(count).load_from(store(tmp_path, numbered(*numbers), allow_partial=True))
    with pytest.raises(RecordError, match="missing layers"):
        layers(count).load_from(store(tmp_path, numbered(*numbers)))
    kept = store(tmp_path, numbered(0, *numbers), allow_partial=True, map_indices_contiguous=False)
    loaded, result = layers(count).load_from(kept)
    there = {n for n in (0, *numbers) if n < count}
    assert {int(key.split(".")[1]) for key in result.applied} == there
    assert all(loaded.layers[n].weight.val().tolist() == [[n, n], [n, n]] for n in there)


@pytest.mark.parametrize(("numbers", "count"), [((0, 2), 2), ((0, 2, 5), 3), ((1, 4, 7, 9), 3), ((5,), 1)])
def test_a_whole_list_loses_its_gaps(tmp_path, numbers, count):
    for partial in (False, True):
        loaded, _ = layers(count).load_from(store(tmp_path, numbered(*numbers), allow_partial=partial))
        assert [layer.weight.val().tolist()[0][0] for layer in loaded.layers] == list(numbers[:count])


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "state_dict."])
def test_a_prefix_is_reported_and_not_left_out_in_silence(tmp_path, prefix):
    values = {f"{prefix}w": torch.ones(3)}
    for partial in (False, True):
        with pytest.raises(
            RecordError, match=rf"missing w[\s\S]*unused in the file: {prefix}w[\s\S]*with_key_remapping"
        ):
            One(zeros(3)).load_from(store(tmp_path, values, allow_partial=partial))
    renamed = store(tmp_path, values).with_key_remapping(rf"^{prefix}", "")
    assert One(zeros(3)).load_from(renamed)[0].w.val().tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "value",
    [
        torch.complex(torch.arange(4.0), torch.arange(4.0) + 1).conj().imag,  # its sign is a bit of the view
        torch.complex(torch.arange(4.0), torch.arange(4.0) + 1).imag,
        torch.arange(16.0).reshape(4, 4).t()[1],
        torch.arange(16.0)[3:11:2],
        torch.arange(4.0, dtype=torch.float64),
        torch.nn.Parameter(torch.arange(4.0).bfloat16()),
    ],
)
def test_views_are_loaded_as_they_look(tmp_path, value):
    loaded, _ = One(zeros(4)).load_from(store(tmp_path, {"w": value}))
    assert np.array_equal(loaded.w.val().into_data().values, value.detach().double().numpy())


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(4, dtype=torch.complex64),
        torch.zeros(4).to_sparse(),
        torch.zeros(4, dtype=torch.float8_e4m3fn),
        torch.zeros(1).expand(4),
        torch.zeros(4, dtype=torch.int64),
        torch.zeros(1, 4),
        torch.tensor(0.0),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, value):
    with pytest.raises(RecordError, match=r"given:[\s\S]*w [\s\S]*expected:[\s\S]*mend:"):
        One(zeros(4)).load_from(store(tmp_path, {"w": value}))
