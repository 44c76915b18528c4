"""Records of quantised modules in every format: codes and scales to the bit, Burn's `QFloat`, and plain models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from burn_torch import Device, RecordError, nn
from burn_torch.core.quantized_data import QuantizedData
from burn_torch.module import QuantizedParam, Quantizer
from burn_torch.record.cbor import decode, encode
from burn_torch.tensor import Calibration, QuantLevel, QuantParam, QuantScheme, QuantStore, QuantValue

SCHEMES = [
    QuantScheme(QuantValue.Q4S, QuantLevel.per_block((4, 1), QuantParam.BF16)),
    QuantScheme(QuantValue.E2M1, (QuantLevel.per_block(2, QuantParam.UE4M3), QuantLevel.per_tensor())),
    QuantScheme(QuantValue.Q8F, QuantLevel.per_channel(-1), QuantStore.Native),
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
