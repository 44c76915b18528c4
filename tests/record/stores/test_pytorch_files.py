"""`.pt` and `.pth`: what is tensors is read, what is more is refused, and nothing runs."""

from __future__ import annotations

import codecs
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burn_torch import Device, Module
from burn_torch.core.dtype import DType
from burn_torch.core.errors import RecordError
from burn_torch.nn import Conv2dConfig, LinearConfig
from burn_torch.record.stores import IdentityAdapter, PytorchStore

DATA = Path(os.environ.get("BURN_TORCH_DATA", Path(__file__).parents[4] / "shared/data")) / "pytorch-weights"
here = pytest.mark.skipif(not DATA.exists(), reason="the files of PyTorch weights are not here")
LEGACY = {"_use_new_zipfile_serialization": False}


def saved(path: Path, value: Any, **options: Any) -> PytorchStore:
    torch.save(value, path, **options)
    return PytorchStore.from_file(path)


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_types_and_shapes_come_bit_for_bit(tmp_path: Path, dtype: torch.dtype, options: Any) -> None:
    tensor = torch.tensor([[0.0, 1.0, 1.0]]).to(dtype)
    values = {"a": tensor, "strided": tensor.T, "scalar": tensor[0, 1], "empty": tensor[:, :0]}
    snapshots = saved(tmp_path / "m.pt", values, **options).get_all_snapshots()
    for key, value in values.items():
        data = snapshots[key].read()
        assert data.shape == tuple(value.shape)
        assert np.array_equal(data.values.astype(np.float64), value.to(torch.float64).numpy())
        assert data.dtype is snapshots[key].dtype


def test_nested_dicts_and_top_level_keys(tmp_path: Path) -> None:
    tensors = {"fc": {"weight": torch.ones(2)}, "list": [torch.zeros(1), 3, "text", None]}
    store = saved(tmp_path / "m.pt", {"state_dict": tensors, "epoch": 3})
    assert store.keys() == ["state_dict.fc.weight", "state_dict.list.0"]
    assert store.with_top_level_key("state_dict").keys() == ["fc.weight", "list.0"]
    with pytest.raises(
        RecordError,
        match=r"it has no key model; it has state_dict, epoch\n  expected: .*\n  mend:     name one of those",
    ):
        store.with_top_level_key("model").keys()


def test_parameters_and_shared_storage(tmp_path: Path) -> None:
    base = torch.nn.Parameter(torch.arange(6.0))
    store = saved(tmp_path / "m.pt", {"a": base, "tied": base, "part": base[2:4]})
    entries = store.get_all_snapshots()
    assert entries["a"] is entries["tied"]
    assert entries["part"].read().to_list() == [2.0, 3.0]


class Two(Module):
    fc: Any


def test_gaps_of_a_sequential_and_layouts_can_be_kept(tmp_path: Path) -> None:
    module: Any = torch.nn.ModuleDict(
        {"fc": torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))}
    )
    store = saved(tmp_path / "m.pt", module.state_dict())
    assert store.keys()[2] == "fc.1.weight"
    assert store.map_indices_contiguous(False).keys()[2] == "fc.2.weight"
    ours = Two([LinearConfig(2, 2).init(Device.cpu()), LinearConfig(2, 2).init(Device.cpu())])
    loaded, result = store.apply_to(ours)
    assert result.unused == ()
    weight = module["fc"][2].weight.detach().numpy()
    assert np.array_equal(loaded.fc[1].weight.val().into_data().array, weight.T)
    kept, _ = store.with_from_adapter(IdentityAdapter()).apply_to(ours)
    assert np.array_equal(kept.fc[1].weight.val().into_data().array, weight)


class Layers(Module):
    layers: Any
    heads: Any = ()


def linears(count: int) -> list[Any]:
    return [LinearConfig(2, 2, bias=False).init(Device.cpu()) for _ in range(count)]


def test_a_list_with_a_layer_missing_keeps_its_numbers(tmp_path: Path) -> None:
    values = {f"layers.{i}.weight": torch.full((2, 2), float(i)) for i in (0, 2)}
    store = saved(tmp_path / "gap.pt", values)
    module = Layers(linears(3))
    loaded, result = module.load_from(store.allow_partial(True))
    assert [loaded.layers[i].weight.val().into_data().array[0, 0] for i in (0, 2)] == [0.0, 2.0]
    assert loaded.layers[1] is module.layers[1]
    assert [path for path, _ in result.missing] == ["layers.1.weight"]
    assert result.unused == ()
    with pytest.raises(RecordError, match=r"missing layers\.1\.weight\n  expected"):
        module.load_from(store)


def test_each_list_of_a_file_is_looked_at_by_itself(tmp_path: Path) -> None:
    keys = [f"layers.{i}.{j}.weight" for i in (1, 3) for j in (0, 2)] + ["heads.0.weight", "heads.2.weight"]
    store = saved(tmp_path / "m.pt", {key: torch.full((2, 2), float(n)) for n, key in enumerate(keys)})
    module = Layers([linears(3), linears(3)], linears(2))  # the outer list has gaps, the inner ones lack a layer
    loaded, result = module.load_from(store.allow_partial(True))
    assert [loaded.layers[i][j].weight.val().into_data().array[0, 0] for i in (0, 1) for j in (0, 2)] == [0, 1, 2, 3]
    assert [loaded.heads[i].weight.val().into_data().array[0, 0] for i in (0, 1)] == [4, 5]
    assert [path for path, _ in result.missing] == ["layers.0.1.weight", "layers.1.1.weight"]


# -- files that mean harm --------------------------------------------------------------------------------------
class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo ran > ran",)


class Worse:
    def __reduce__(self) -> Any:
        return eval, ("1",)


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
def test_code_in_a_pickle_does_not_run_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    store = saved(tmp_path / "m.pt", {"a": torch.ones(2), "b": Evil()}, **options)
    with pytest.raises(
        RecordError,
        match=r"cannot be loaded\n  given:    .*m.pt: it asks for (posix|nt).system, which is more than tensors\n"
        r"  expected: a sound PyTorch file\n  mend:     in PyTorch, save the state_dict alone",
    ):
        store.keys()
    assert not (tmp_path / "ran").exists()


def test_all_that_a_pickle_asks_for_is_named(tmp_path: Path) -> None:
    store = saved(tmp_path / "m.pt", {"a": Evil(), "b": Worse(), "c": torch.ones(1)})
    with pytest.raises(RecordError, match=r"it asks for .*eval, posix.system, which"):
        store.keys()


def test_a_whole_module_is_refused_by_its_class(tmp_path: Path) -> None:
    store = saved(tmp_path / "m.pt", torch.nn.Linear(2, 2))
    with pytest.raises(RecordError, match=r"it asks for torch.nn.modules.linear.Linear"):
        store.keys()


class Call:
    """Asks for a call while it is unpickled."""

    def __init__(self, called: Any, *args: Any) -> None:
        self.made = called, args

    def __reduce__(self) -> Any:
        return self.made


GROWING = {
    "a number of bytes": Call(bytearray, 32 << 20),
    "bytes by a tensor": Call(bytearray, torch.tensor(32 << 20)),
    "bytes of bytes": Call(bytearray, Call(bytearray, 32 << 20)),
    "a tensor of no storage": Call(torch.FloatTensor, 8 << 20),
    "an encoding": Call(codecs.encode, "x", "idna"),
}


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
@pytest.mark.parametrize("what", GROWING)
def test_no_call_of_a_small_pickle_makes_a_large_value(tmp_path: Path, what: str, options: Any) -> None:
    store = saved(tmp_path / "m.pt", {"a": GROWING[what]}, **options)
    assert (tmp_path / "m.pt").stat().st_size < 3000
    tracemalloc.start()
    with pytest.raises(
        RecordError, match=r"it asks for a call of .* more bytes than the file has\n(.|\n)*state_dict alone"
    ):
        store.keys()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("options", [{}, LEGACY], ids=["zip", "legacy"])
def test_bytes_beside_tensors_are_passed_over(tmp_path: Path, options: Any) -> None:
    values = {"a": torch.ones(2), "bytes": b"\xff\0", "array": bytearray(b"\xfe"), "none": bytearray(), "set": {1}}
    assert saved(tmp_path / "m.pt", values, **options).keys() == ["a"]


def test_a_plain_pickle_is_refused(tmp_path: Path) -> None:
    for value in ({"a": 1}, Evil(), [b"x" * 1000]):
        (tmp_path / "m.pt").write_bytes(pickle.dumps(value))
        with pytest.raises(RecordError, match=r"m.pt: it (is damaged|asks for)"):
            PytorchStore.from_file(tmp_path / "m.pt").keys()


def test_a_packed_zip_is_refused_before_anything_is_unpacked(tmp_path: Path) -> None:
    saved(tmp_path / "m.pt", {"a": torch.zeros(1000)})
    with (
        zipfile.ZipFile(tmp_path / "m.pt") as sound,
        zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for member in sound.infolist():
            bomb.writestr(member.filename, sound.read(member) + bytes(1 << 24))
    with pytest.raises(
        RecordError, match=r"it is no file of torch.save: m/data.pkl is packed\n[\s\S]*mend:     save it with"
    ):
        PytorchStore.from_file(tmp_path / "bomb.pt").keys()


def test_damage_at_any_place_gives_one_error_or_the_same_keys(tmp_path: Path) -> None:
    for options in ({}, LEGACY):
        store = saved(tmp_path / "m.pt", {"a": torch.ones(3), "b": torch.ones(2, 2)}, **options)
        sound = (tmp_path / "m.pt").read_bytes()
        for cut in range(0, len(sound), 29):
            (tmp_path / "m.pt").write_bytes(sound[:cut])
            with pytest.raises(RecordError, match="cannot be loaded"):
                store.keys()
        for at in range(0, len(sound), 7):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << at % 8
            (tmp_path / "m.pt").write_bytes(damaged)
            try:
                for entry in store.get_all_snapshots().values():
                    entry.read()
            except RecordError as err:
                assert "cannot be loaded" in str(err)  # noqa: PT017  # damage to the values alone cannot be seen


def test_tensors_that_records_do_not_hold_are_all_named(tmp_path: Path) -> None:
    values = {
        "a": torch.ones(2, dtype=torch.complex64), "b": torch.ones(2).to_sparse(), "c": torch.ones(1),
        "wide": torch.ones(1).expand(1000),
    }  # fmt: skip
    with pytest.raises(
        RecordError,
        match=r"a is complex64 strided, which records do not hold\n +b is float32 sparse_coo, which.*\n"
        r" +wide needs 4000 bytes, and has 4\n  expected: .*\n  mend:     convert them",
    ):
        saved(tmp_path / "m.pt", values).keys()


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    value: Any = torch.ones(1)
    for _ in range(40):
        value = {"a": value}
    with pytest.raises(RecordError, match="it is nested deeper than 32 levels"):
        saved(tmp_path / "m.pt", value).keys()


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"there is no such file\n  expected: .*\n  mend:     check the path"):
        PytorchStore.from_file(tmp_path / "absent.pt").keys()


# -- real files ------------------------------------------------------------------------------------------------------
@here
@pytest.mark.parametrize("name", [path.name for path in sorted((DATA / "burn-store-tests/reader").glob("*.pt"))])
def test_the_files_of_burns_own_tests_are_read_as_torch_reads_them(name: str) -> None:
    path = DATA / "burn-store-tests/reader" / name
    if name == "broken.pt":
        with pytest.raises(RecordError, match="cannot be loaded"):
            PytorchStore.from_file(path).keys()
        return
    snapshots = PytorchStore.from_file(path).map_indices_contiguous(False).get_all_snapshots()
    wanted: dict[str, torch.Tensor] = {}

    def gather(value: Any, where: str) -> None:
        if isinstance(value, torch.Tensor):
            wanted[where] = value
        elif isinstance(value, dict):
            for key, item in value.items():
                gather(item, f"{where}.{key}" if where else str(key))

    gather(torch.load(path, weights_only=True), "")
    assert snapshots.keys() == wanted.keys()
    for key, tensor in wanted.items():
        kept = snapshots[key].read().values
        plain = tensor.detach().float() if tensor.dtype is torch.bfloat16 else tensor.detach()
        assert np.array_equal(kept, plain.numpy(), equal_nan=kept.dtype.kind == "f")


@here
def test_burns_example_of_renamed_keys() -> None:
    class Inner(Module):
        conv1: Any
        conv2: Any

    conv = Conv2dConfig((2, 2), (2, 2))
    store = PytorchStore.from_file(DATA / "burn-store-tests/modules/key_remap.pt").with_key_remapping(
        "conv\\.(.*)", "$1"
    )
    shapes = {key: entry.shape for key, entry in store.get_all_snapshots().items()}
    assert shapes["conv1.weight"] == (2, 2, 2, 2)
    bias = "conv2.bias" in shapes
    ours = Inner(conv.init(Device.cpu()), Conv2dConfig((2, 2), (2, 2), bias=bias).init(Device.cpu()))
    loaded, result = store.apply_to(ours)
    assert result.unused == () == result.missing
    raw = torch.load(DATA / "burn-store-tests/modules/key_remap.pt", weights_only=True)
    assert np.array_equal(loaded.conv1.weight.val().into_data().array, raw["conv.conv1.weight"].numpy())


@here
def test_a_legacy_detector_has_all_its_tensors() -> None:
    entries = PytorchStore.from_file(DATA / "ultraface-rfb-320.pth").map_indices_contiguous(False).get_all_snapshots()
    assert len(entries) == 244
    assert entries["base_net.0.0.weight"].dtype is DType.F32
    assert len(PytorchStore.from_file(DATA / "yunet_n.pth").with_top_level_key("state_dict").keys()) > 100
