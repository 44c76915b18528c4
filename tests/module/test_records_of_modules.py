"""Records and modules: tied parameters, identities, and every fault at once."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from burn_torch import Device, Module
from burn_torch.core.data import TensorData
from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.module import ModuleRecord, Param
from burn_torch.module.record import ForeignLayoutWarning, RecordEntry
from burn_torch.nn import LayerNormConfig, Linear, LinearConfig
from burn_torch.record.stores import PyTorchToBurnAdapter, SafetensorsStore

DEVICE = Device.cpu()


class Two(Module):
    first: Linear
    second: Linear


class Bag(Module):
    items: dict[Any, Any]


def linear(d_output: int = 3) -> Linear:
    return LinearConfig(3, d_output).init(DEVICE)


def array(param: Param) -> Any:
    return param.val().into_data().array


def test_tied_parameters_stay_tied_when_loaded() -> None:
    shared, other = linear(), linear()
    loaded = Two(shared, shared).load_record(Two(other, other).into_record())
    assert loaded.first is loaded.second
    assert np.array_equal(array(loaded.first.weight), array(other.weight))


def test_a_record_with_two_values_for_a_tied_parameter_is_refused() -> None:
    shared = linear()
    with pytest.raises(
        RecordError, match=r"first.weight and second.weight are one parameter of the module, with two values"
    ):
        Two(shared, shared).load_record(Two(linear(), linear()).into_record())


def test_untied_parameters_keep_ids_of_their_own_when_a_tied_record_is_loaded() -> None:
    shared = linear()
    loaded = Two(linear(), linear()).load_record(Two(shared, shared).into_record())
    assert loaded.first.weight.id == shared.weight.id
    assert loaded.second.weight.id != shared.weight.id
    assert np.array_equal(array(loaded.first.weight), array(loaded.second.weight))


@pytest.mark.parametrize("items", [{1: linear(), "1": linear()}, {"a.b": linear(), "a": {"b": linear()}}])
def test_two_parameters_at_one_path_are_refused_not_lost(items: dict[Any, Any]) -> None:
    with pytest.raises(
        RecordError, match=r"two values of Bag have one path\n  given:    items.*weight twice\n  expected: .*\n  mend: "
    ):
        Bag(items).into_record()


def test_all_faults_come_at_once_and_nothing_is_loaded() -> None:
    wanted = Bag({"weight": linear(), "gone": linear(), "wide": linear(4)})
    record = Bag({"wieght": linear(), "gone": linear().map_params(lambda p: p.map(lambda t: t.cast(DType.F64))),
                  "wide": linear(5)}).into_record()  # fmt: skip
    with pytest.raises(RecordError) as caught:
        wanted.load_record(record)
    for part in (
        "this record does not fit Bag", "a record of Bag",
        "missing key items.weight.weight (is it items.wieght.weight?)",
        "unused key items.wieght.bias", "items.gone.weight has type f64, the module wants f32",
        "items.wide.weight has shape (3, 5), the module wants (3, 4)", "mend:     build the module",
    ):  # fmt: skip
        assert part in str(caught.value)


def test_many_faults_are_shown_by_kind_with_hints_at_names_of_pytorch() -> None:
    class Norms(Module):
        norm1: Any
        norm2: Any
        more: Any = ()

    norm = LayerNormConfig(3).init(DEVICE)
    theirs = {"norm1.weight": [1.0] * 3, "nrom2.weight": [1.0] * 3}
    record = ModuleRecord(
        {key: RecordEntry(DType.F32, (3,), None, lambda: TensorData.of([1.0] * 3)) for key in theirs}, {"format": "pt"}
    )
    with pytest.raises(RecordError) as caught:
        Norms(norm, LayerNormConfig(3).init(DEVICE)).load_record(record)
    for part in ("missing key norm1.gamma (is it norm1.weight?)", "missing key norm2.gamma (is it nrom2.weight?)",
                 "unused key nrom2.weight (is it norm2.gamma?)", "PyTorchToBurnAdapter"):  # fmt: skip
        assert part in str(caught.value)
    many = Norms(norm, norm, [LayerNormConfig(3).init(DEVICE) for _ in range(30)])
    with pytest.raises(RecordError) as caught:
        many.load_record(record)
    assert "unused key nrom2.weight" in str(caught.value)
    assert "and 54 more missing keys" in str(caught.value)


def test_a_square_matrix_of_a_pytorch_file_is_warned_of(tmp_path: Path) -> None:
    save_file({"items.a.weight": np.eye(3, dtype=np.float32)}, tmp_path / "m.safetensors", {"format": "pt"})
    square = Bag({"a": LinearConfig(3, 3, bias=False).init(DEVICE)})
    for load in (
        lambda: square.load_file(tmp_path / "m.safetensors"),
        lambda: square.load_from(SafetensorsStore.from_file(tmp_path / "m.safetensors")),
    ):
        with pytest.warns(ForeignLayoutWarning, match=r"items\.a\.weight \(3, 3\), from a file that says format: pt\n"):
            load()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapted = SafetensorsStore.from_file(tmp_path / "m.safetensors").with_from_adapter(PyTorchToBurnAdapter())
        square.load_from(adapted)
        save_file({"items.a.weight": np.eye(3, dtype=np.float32)}, tmp_path / "m.safetensors")
        square.load_file(tmp_path / "m.safetensors")


def test_policies_let_faults_pass() -> None:
    record = Bag({"a": linear(), "b": linear()}).into_record()
    only = Bag({"a": linear()})
    assert np.array_equal(
        array(only.load_record(record.allow_unused()).items["a"].weight), record.entries["items.a.weight"].read().array
    )
    more = Bag({"a": linear(), "b": linear(), "c": linear()})
    loaded = more.load_record(record.allow_partial())
    assert loaded.items["c"] is more.items["c"]
    half = Bag({"a": linear().map_params(lambda p: p.map(lambda t: t.cast(DType.F16)))}).into_record()
    assert array(only.load_record(half.cast_to_module_dtype()).items["a"].weight).dtype == np.float32


def test_mappers_see_what_goes_in_and_out() -> None:
    param = Param.from_data(np.ones(2), DEVICE).with_mapper(load=lambda t: t / 2, save=lambda t: t * 2)
    module = Bag({"a": param})
    record = module.into_record()
    assert record.entries["items.a"].read().array.tolist() == [2.0, 2.0]
    assert array(module.load_record(record).items["a"]).tolist() == [1.0, 1.0]
