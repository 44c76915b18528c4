"""Records of quantised modules in every format: codes and scales to the bit, Burn's `QFloat`, and plain models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, RecordError, nn
from burn_torch.core.quantized_data import QuantizedData
from burn_torch.module import ModuleRecord, QuantizedParam, Quantizer
from burn_torch.record.cbor import decode, encode
from burn_torch.tensor import Calibration, QuantLevel, QuantParam, QuantPropagation, QuantScheme, QuantStore, QuantValue

SCHEMES = [
    QuantScheme(QuantValue.Q4S, QuantLevel.per_block((4, 1), QuantParam.BF16)),
    QuantScheme(QuantValue.E2M1, (QuantLevel.per_block(2, QuantParam.UE4M3), QuantLevel.per_tensor())),
    QuantScheme(QuantValue.Q8F, QuantLevel.per_channel(-1), QuantStore.Native, propagation=QuantPropagation.Propagate),
]


def layer() -> nn.Linear:
    return nn.LinearConfig(9, 5, bias=False).init(Device.cpu())


@pytest.mark.parametrize("ending", [".bpk", ".mpk", ".safetensors", ".bin"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.value.value)
def test_a_quantised_module_comes_back_to_the_bit(scheme: QuantScheme, ending: str, tmp_path: Path) -> None:
    small = layer().quantize_weights(Quantizer(Calibration.MinMax, scheme))
    path = small.save_file(tmp_path / f"model{ending}")
    expected = np.asarray(small.weight.val().dequantize())
    for module in (layer(), layer().quantize_weights(Quantizer(Calibration.MinMax, scheme))):
        loaded = module.load_file(path)
        assert isinstance(loaded.weight, QuantizedParam)
        assert loaded.weight.scheme == scheme
        assert np.array_equal(np.asarray(loaded.weight.val().dequantize()), expected)
    plain = layer()
    back = small.load_file(plain.save_file(tmp_path / f"plain{ending}"))
    assert np.array_equal(np.asarray(back.weight.val()), np.asarray(plain.weight.val()))


def test_burnpack_has_one_tensor_of_burns_type(tmp_path: Path) -> None:
    scheme = QuantScheme(QuantValue.Q8S, QuantLevel.per_block(32))
    small = layer().quantize_weights(Quantizer(Calibration.MinMax, scheme))
    data = small.save_file(tmp_path / "model.bpk").read_bytes()
    length = int.from_bytes(data[6:10], "little")
    described = decode(data[10 : 10 + length])["tensors"]
    assert list(described) == ["weight"]
    burns = {"value": "Q8S", "store": {"PackedU32": 0}, "mode": "Symmetric", "level": {"Block": [32]}, "param": "F32"}
    assert (described["weight"]["shape"], described["weight"]["dtype"]) == ([9, 5], {"QFloat": burns})
    start, end = described["weight"]["data_offsets"]
    begin = 10 + length + -(10 + length) % 256
    stored = QuantizedData.from_bytes(data[begin + start : begin + end], (9, 5), scheme)
    assert np.array_equal(stored.codes.array, np.asarray(small.weight.val().codes))

    contents = {"tensors": described, "metadata": {}}  # as Burn writes it, without our words
    head = encode(contents)
    header = data[:6] + len(head).to_bytes(4, "little") + head
    foreign = tmp_path / "burn.bpk"
    foreign.write_bytes(header + bytes(-len(header) % 256) + data[begin + start : begin + end])
    loaded = layer().load_file(foreign)
    assert np.array_equal(np.asarray(loaded.weight.val().dequantize()), np.asarray(small.weight.val().dequantize()))

    described["weight"]["dtype"]["QFloat"]["value"] = "Q9S"
    head = encode(contents)
    header = data[:6] + len(head).to_bytes(4, "little") + head
    foreign.write_bytes(header + bytes(-len(header) % 256) + data[begin + start : begin + end])
    with pytest.raises(RecordError, match=r"weight is quantised as nothing here is(.|\n)*Q9S"):
        layer().load_file(foreign)


def damaged(**fields: Any) -> str:
    scheme = {"value": "Q8S", "store": "Native", "mode": "Symmetric", "level": "Tensor", "param": "F32"}
    return json.dumps({"weight": {"scheme": scheme, "shape": [9, 5], "dtype": "f32"} | fields})


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000, "[]", "{", '{"weight": 3}', damaged(shape=[9.0, 5.0]), damaged(shape=None), damaged(dtype="f31"),
        damaged(scheme={}), damaged(propagation="often"),
        damaged(scheme={"value": "Q8S", "store": "Native", "mode": "Symmetric", "level": {"Block": [1e400]}}),
    ],
)  # fmt: skip
def test_a_list_of_quantised_parameters_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    small = layer().quantize_weights(Quantizer(Calibration.MinMax, SCHEMES[2]))
    record = small.into_record()
    wrong = ModuleRecord(record.entries, {**record.metadata, "quantized": text})
    with pytest.raises(RecordError, match=r"(?s)lists no quantised parameters.*given:.*expected:.*mend:"):
        layer().load_record(wrong)
    with pytest.raises(RecordError, match=r"(?s)cannot be saved.*given:.*expected:.*mend:"):
        wrong.save(tmp_path / "model.bpk")


def test_a_list_that_is_not_that_of_the_codes_is_not_saved(tmp_path: Path) -> None:
    record = layer().quantize_weights(Quantizer(Calibration.MinMax, SCHEMES[2])).into_record()
    with pytest.raises(RecordError, match=r"(?s)weight: codes and scales that are not those of \(9, 5\).*mend:"):
        ModuleRecord(record.entries, {**record.metadata, "quantized": damaged()}).save(tmp_path / "model.bpk")
