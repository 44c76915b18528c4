"""Stores: filters, other names, partial and half-precision files, and results that name every key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Module, Param
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ArtifactError, RecordError
from burn_torch.module import ModuleRecord
from burn_torch.nn import BatchNormConfig, Linear, LinearConfig
from burn_torch.record.stores import (
    BurnpackStore,
    BurnToPyTorchAdapter,
    FloatCastAdapter,
    HalfPrecisionAdapter,
    IdentityAdapter,
    KeyRemapper,
    PathFilter,
    PytorchStore,
    SafetensorsStore,
    WritableStore,
    map_indices_contiguous,
)

DEVICE = Device.cpu()


class Net(Module):
    encoder: Linear
    head: Linear
    norm: Any


def net(d_output: int = 4) -> Net:
    return Net(LinearConfig(3, 4).init(DEVICE), LinearConfig(4, d_output).init(DEVICE), BatchNormConfig(2).init(DEVICE))


def array(param: Param) -> Any:
    return param.val().into_data().array


@pytest.fixture(params=[SafetensorsStore, BurnpackStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> WritableStore:
    opened: WritableStore = request.param.from_file(tmp_path / "model")
    return opened


# -- there and back -------------------------------------------------------------------------------------
def test_a_module_goes_into_a_store_and_comes_out(store: WritableStore) -> None:
    model = net()
    path = model.save_into(store.metadata("note", "first"))
    assert path.name == f"model{store.ending}"
    assert ModuleRecord.load(path).metadata == {"module": "Net", "note": "first"}
    loaded, result = net().load_from(store)
    assert np.array_equal(array(loaded.head.weight), array(model.head.weight))
    assert result.is_success()
    assert len(result.applied) == 8
    assert str(result) == "8 applied, 0 skipped, 0 missing, 0 unused, 0 wrong"
    assert store.keys() == [*result.applied]
    snapshot = store.get_snapshot("head.weight")
    assert snapshot is not None
    assert np.array_equal(snapshot.read().array, array(model.head.weight))
    assert store.get_snapshot("tail") is None


@pytest.mark.parametrize("store", [PytorchStore.from_file("model.pt"), "model.pt", Path("model.pt")])
def test_what_is_only_read_is_refused_with_what_writes_for_pytorch(store: Any) -> None:
    with pytest.raises(ArgumentError, match=r"save_into[\s\S]*mend: .*BurnToPyTorchAdapter"):
        net().save_into(store)


def test_bytes_instead_of_a_file(store: WritableStore) -> None:
    model = net()
    data = store.collect_bytes(model)
    loaded, _ = type(store).from_bytes(data).apply_to(net())
    assert np.array_equal(array(loaded.head.weight), array(model.head.weight))
    with pytest.raises(RecordError, match=r"a store of bytes\n  expected: .*\n  mend:     use collect_bytes"):
        type(store).from_bytes().collect_from(model)


def test_a_file_that_is_there_is_not_replaced_unasked(store: WritableStore) -> None:
    model = net()
    store.collect_from(model)
    with pytest.raises(
        ArtifactError,
        match=r"the output file exists already\n  given:    .*model.*\n  expected: .*\n  mend:     overwrite\(True\)",
    ):
        store.collect_from(net())
    loaded, _ = store.apply_to(net())
    assert np.array_equal(array(loaded.head.weight), array(model.head.weight))
    store.overwrite(True).collect_from(net())


def test_burnpack_paths_without_an_ending(tmp_path: Path) -> None:
    assert BurnpackStore.from_file(tmp_path / "m").path().name == "m.bpk"
    assert BurnpackStore.from_file(tmp_path / "m").auto_extension(False).path().name == "m"


# -- filters ---------------------------------------------------------------------------------------------
def test_only_what_the_filter_takes_is_loaded(store: WritableStore) -> None:
    model, fresh = net(), net()
    store.collect_from(model)
    loaded, result = store.with_regex(r"^encoder\.").with_full_path("head.bias").apply_to(fresh)
    assert result.applied == ("encoder.weight", "encoder.bias", "head.bias")
    assert "head.weight" in result.skipped
    assert result.unused == ()
    assert loaded.head.weight is fresh.head.weight
    assert np.array_equal(array(loaded.encoder.weight), array(model.encoder.weight))


def test_filters_by_container_and_when_writing(store: WritableStore) -> None:
    linear = store.with_predicate(lambda path, container: container.endswith("Struct:Linear"))
    linear.collect_from(net())
    assert store.keys() == ["encoder.weight", "encoder.bias", "head.weight", "head.bias"]
    assert len(store.match_all().allow_partial(True).apply_to(net())[1].missing) == 4


def test_path_filters() -> None:
    chosen = PathFilter.from_paths(["a.b"]) | PathFilter.from_regex_patterns(["^c"])
    assert [chosen.matches(path) for path in ("a.b", "a", "cd", "dc")] == [True, False, True, False]
    assert chosen.criteria_count() == 2
    assert PathFilter.none().is_empty()
    assert not PathFilter.none().matches("a")
    assert PathFilter.all().matches("a")
    assert PathFilter().match_all().criteria_count() == 1
    assert PathFilter.from_predicate(lambda path, _: len(path) < 2).with_full_paths(["bb"]).matches("bb")
    with pytest.raises(
        ArgumentError, match=r"not a regular expression\n  given:    \(: .*\n  expected: .*\n  mend:     escape"
    ):
        PathFilter().with_regex("(")


# -- other names --------------------------------------------------------------------------------------------
def test_keys_are_renamed_with_groups(store: WritableStore) -> None:
    model = net()
    store.with_key_remapping(r"^(encoder|head)\.", "bert.$1.").collect_from(model)
    assert "bert.encoder.weight" in store.keys()  # noqa: SIM118  # a method, not a dict
    loaded, result = store.with_key_remapping(r"^bert\.(?P<rest>.*)", "${rest}").apply_to(net())
    assert result.unused == ()
    assert np.array_equal(array(loaded.encoder.weight), array(model.encoder.weight))


def test_names_that_clash_or_lack_a_group_are_refused(store: WritableStore) -> None:
    store.collect_from(net())
    with pytest.raises(
        RecordError,
        match=r"keys cannot be renamed\n  given:    encoder.weight and head.weight both become weight; .*\n",
    ):
        store.with_key_remapping(r".*\.(weight|bias)", "$1").keys()
    with pytest.raises(
        RecordError, match=r"keys cannot be renamed\n  given:    .* to g<2>: .*\n  exp.*\n  mend:     \$1"
    ):
        KeyRemapper().add_pattern("a", "$2").remap(["a"])
    assert KeyRemapper().is_empty()
    assert KeyRemapper.from_patterns([("a", "b"), ("b", "c")]).remap(["a"]) == {"a": "c"}


def test_numbers_lose_their_gaps() -> None:
    keys = ["fc.0.w", "fc.2.w", "fc.10.w", "deep.3.block.1.w", "deep.7.block.5.w", "x1.w"]
    assert list(map_indices_contiguous(keys).values()) == [
        "fc.0.w", "fc.1.w", "fc.2.w", "deep.0.block.0.w", "deep.1.block.0.w", "x1.w",
    ]  # fmt: skip


# -- faults ----------------------------------------------------------------------------------------------------
class Other(Module):
    encoder: Linear
    heads: Linear
    norm: Any


def test_every_fault_comes_at_once_and_nothing_is_loaded(store: WritableStore) -> None:
    store.collect_from(net())
    other = Other(LinearConfig(3, 5).init(DEVICE), LinearConfig(4, 4).init(DEVICE), BatchNormConfig(2).init(DEVICE))
    with pytest.raises(RecordError) as caught:
        store.apply_to(other)
    for part in (
        "this file does not fit Other\n  given:    ",
        "encoder.weight has shape (3, 4) as encoder.weight, the module wants (3, 5)",
        "encoder.bias has shape (4,)", "missing heads.weight (is it head.weight?)", "missing heads.bias",
        "unused in the file: head.weight, head.bias", "\n  expected: ", "\n  mend:     rename keys",
    ):  # fmt: skip
        assert part in str(caught.value)


def test_without_validation_what_fits_is_loaded_and_the_rest_listed(store: WritableStore) -> None:
    model = net()
    store.collect_from(model)
    other = Other(LinearConfig(3, 5).init(DEVICE), LinearConfig(4, 4).init(DEVICE), BatchNormConfig(2).init(DEVICE))
    loaded, result = store.validate(False).apply_to(other)
    assert not result.is_success()
    assert [error.path for error in result.errors] == ["encoder.weight", "encoder.bias"]
    assert [error.kind for error in result.errors] == ["shape", "shape"]
    assert result.missing == (
        ("heads.weight", "Struct:Other.Struct:Linear"), ("heads.bias", "Struct:Other.Struct:Linear"),
    )  # fmt: skip
    assert result.unused == ("head.weight", "head.bias")
    assert result.closest("heads.bias") == "head.bias"
    assert "4 applied, 0 skipped, 2 missing, 2 unused, 2 wrong" in str(result)
    assert loaded.encoder is other.encoder


def test_partial_files(store: WritableStore) -> None:
    store.with_regex("^head").collect_from(net())
    with pytest.raises(RecordError, match=r"missing encoder.weight\n[\s\S]*missing norm.running_var"):
        store.apply_to(net())
    _, result = store.allow_partial(True).apply_to(net())
    assert result.applied == ("head.weight", "head.bias")


def test_other_types_than_floats_must_fit(store: WritableStore) -> None:
    whole = ModuleRecord.from_module(net().map_params(lambda p: Param(p.val().cast(DType.I64))))
    whole.save(store.path())
    with pytest.raises(RecordError, match=r"head.weight has type i64 as head.weight, the module wants f32"):
        store.apply_to(net())


# -- types -------------------------------------------------------------------------------------------------------
def test_half_precision_files_load_as_float32(store: WritableStore) -> None:
    model = net()
    store.with_to_adapter(HalfPrecisionAdapter().without_module("BatchNorm")).collect_from(model)
    types = {key: entry.dtype for key, entry in store.get_all_snapshots().items()}
    assert types["head.weight"] is types["head.bias"] is DType.F16
    assert types["norm.running_var"] is types["norm.gamma"] is DType.F32
    loaded, _ = store.apply_to(net())
    assert array(loaded.head.weight).dtype == np.float32
    assert np.array_equal(array(loaded.head.weight), array(model.head.weight).astype(np.float16).astype(np.float32))


def test_casts_in_a_chain(store: WritableStore) -> None:
    adapter = BurnToPyTorchAdapter().chain(FloatCastAdapter.to(DType.BF16))
    store.with_to_adapter(adapter).collect_from(net())
    entries = store.get_all_snapshots()
    assert entries["norm.weight"].dtype is DType.BF16
    assert entries["head.weight"].shape == (4, 4)
    assert IdentityAdapter().chain(HalfPrecisionAdapter().with_module("BatchNorm")).twins(None) is None  # type: ignore[arg-type]


def test_a_value_that_half_precision_cannot_hold_is_refused(store: WritableStore) -> None:
    model = net().map_params(lambda p: Param.from_data(np.full(p.shape, 1e9, np.float32), DEVICE))
    with pytest.raises(RecordError, match=r"encoder.weight with 1000000000.0, which f16 does not hold"):
        store.with_to_adapter(HalfPrecisionAdapter()).collect_from(model)
    assert not store.path().exists()


# -- ties ----------------------------------------------------------------------------------------------------------
def test_ties_of_module_and_file_are_found(store: WritableStore) -> None:
    shared = LinearConfig(4, 4).init(DEVICE)
    tied = Net(shared, shared, None)
    store.collect_from(tied)
    loaded, result = store.apply_to(Net(LinearConfig(4, 4).init(DEVICE), LinearConfig(4, 4).init(DEVICE), None))
    assert result.tied == (("encoder.weight", "head.weight"), ("encoder.bias", "head.bias"))
    assert "tied encoder.weight = head.weight" in str(result)
    assert np.array_equal(array(loaded.encoder.weight), array(loaded.head.weight))
    store.overwrite(True).with_regex("^encoder").collect_from(tied)  # one of two names is enough for a tied module
    other = LinearConfig(4, 4).init(DEVICE)
    again, result = store.apply_to(Net(other, other, None))
    assert result.missing == ()
    assert again.encoder is again.head
    apart = Net(LinearConfig(4, 4).init(DEVICE), LinearConfig(4, 4).init(DEVICE), None)
    store.overwrite(True).collect_from(apart)
    with pytest.raises(
        RecordError, match=r"head.weight is one parameter with encoder.weight, and the file has two values"
    ):
        store.apply_to(tied)
