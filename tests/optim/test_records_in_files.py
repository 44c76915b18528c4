"""Tests what optimizers and schedules remember, through files, bytes and recorders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burn_torch import Device, Tensor
from burn_torch.core.errors import RecordError
from burn_torch.module import ModuleRecord
from burn_torch.module.gradients import GradientsParams
from burn_torch.nn import Linear, LinearConfig
from burn_torch.optim import (
    AdamConfig,
    CosineAnnealingLrSchedulerConfig,
    LrSchedulerRecord,
    OptimizerRecord,
    SgdConfig,
)
from burn_torch.record import BinBytesRecorder, CompactRecorder, DefaultRecorder, JsonGzFileRecorder

DEVICE = Device.cpu().autodiff()


def trained(steps: int = 3) -> tuple[Linear, Any]:
    model, optim = LinearConfig(3, 2).init(DEVICE), AdamConfig().init()
    return step(model, optim, steps)


def step(model: Linear, optim: Any, steps: int) -> tuple[Linear, Any]:
    x = Tensor.from_data(np.arange(6, dtype=np.float32).reshape(2, 3) / 7, DEVICE)
    for _ in range(steps):
        loss = (model.forward(x) * model.forward(x)).mean()
        model, optim = optim.step(0.1, model, GradientsParams.from_grads(loss.backward(), model))
    return model, optim


def same_future(model: Linear, left: Any, right: Any) -> None:
    ours, theirs = step(model, left, 2)[0], step(model, right, 2)[0]
    assert np.array_equal(ours.weight.val().into_data().array, theirs.weight.val().into_data().array)


@pytest.mark.parametrize("ending", ["", ".safetensors", ".bpk", ".mpk", ".json.gz", ".bin"])
def test_an_optimizer_goes_on_with_the_same_bits_after_a_file(tmp_path: Path, ending: str) -> None:
    model, optim = trained()
    path = optim.to_record().save(tmp_path / f"optim{ending}")
    back = AdamConfig().init().load_record(OptimizerRecord.load(path), DEVICE)
    same_future(model, optim, back)
    assert list(OptimizerRecord.load(path).states) == list(optim.to_record().states)


def test_an_optimizer_goes_on_after_bytes_and_recorders(tmp_path: Path) -> None:
    model, optim = trained()
    record = optim.to_record()
    back = [
        OptimizerRecord.from_bytes(record.into_bytes()),
        BinBytesRecorder().load(BinBytesRecorder().record(record), into=OptimizerRecord),
    ]
    for recorder in (DefaultRecorder(), JsonGzFileRecorder()):
        recorder.record(record, tmp_path / "optim")
        back.append(recorder.load(tmp_path / "optim", into=OptimizerRecord))
    for restored in back:
        same_future(model, optim, AdamConfig().init().load_record(restored))


def test_a_compact_optimizer_has_float32_again(tmp_path: Path) -> None:
    model, optim = trained()
    CompactRecorder().record(optim.to_record(), tmp_path / "optim")
    restored = CompactRecorder().load(tmp_path / "optim", into=OptimizerRecord)
    for ident, (time, slots) in optim.to_record().states.items():
        assert restored.states[ident][0] == time == 3
        for name, tensor in slots.items():
            kept = tensor.into_data().array.astype(np.float16).astype(np.float32)
            assert np.array_equal(restored.states[ident][1][name].into_data().array, kept)
    step(model, AdamConfig().init().load_record(restored), 1)


def test_an_optimizer_without_tensors_keeps_its_steps() -> None:
    model, optim = step(LinearConfig(3, 2).init(DEVICE), SgdConfig().init(), 2)
    record = OptimizerRecord.from_bytes(optim.to_record().into_bytes())
    assert [time for time, _ in record.states.values()] == [2, 2]
    same_future(model, optim, SgdConfig().init().load_record(record))
    assert OptimizerRecord.from_bytes(AdamConfig().init().to_record().into_bytes()).is_empty()


def test_a_schedule_goes_on_where_it_was(tmp_path: Path) -> None:
    config = CosineAnnealingLrSchedulerConfig(0.1, num_iters=10)
    schedule = config.init()
    for _ in range(4):
        schedule.step()
    record = schedule.to_record()
    DefaultRecorder().record(record, tmp_path / "schedule")
    for restored in (
        LrSchedulerRecord.load(record.save(tmp_path / "schedule.bpk")),
        LrSchedulerRecord.from_bytes(record.into_bytes()),
        DefaultRecorder().load(tmp_path / "schedule", into=LrSchedulerRecord),
    ):
        assert restored == record
        assert config.init().load_record(restored).step() == schedule.lr_at(4)


def test_schedules_within_schedules() -> None:
    record = LrSchedulerRecord(kind="Composed").with_scalar("lr", 0.5).with_record("0", {"taken": 3, "kind": "Linear"})
    restored = LrSchedulerRecord.from_bytes(record.into_bytes())
    assert restored == {"kind": "Composed", "lr": 0.5, "0": {"taken": 3, "kind": "Linear"}}
    assert isinstance(restored["0"], LrSchedulerRecord)
    assert LrSchedulerRecord.from_bytes(LrSchedulerRecord().into_bytes()).is_empty()
    with pytest.raises(
        RecordError, match=r"schedule cannot be saved\n  given:    a, list\n  expected: num.*\n  mend:     give"
    ):
        LrSchedulerRecord(a=[1]).into_bytes()


def test_records_of_other_kinds_are_refused() -> None:
    model, optim = trained(1)
    of_model, of_optim = model.into_record().into_bytes(), optim.to_record().into_bytes()
    with pytest.raises(
        RecordError,
        match=r"this is not a record of an optimizer\n  given:    the record of a module, Linear\n  exp.*\n  mend: ",
    ):
        OptimizerRecord.from_bytes(of_model)
    with pytest.raises(
        RecordError, match=r"this is not a record of a schedule\n  given:    a record of kind optimizer\n"
    ):
        LrSchedulerRecord.from_bytes(of_optim)
    named = optim.to_record().into_named()
    for change in ({"order": "["}, {"order": '["zz"]'}, {"order": "[]"}):
        with pytest.raises(RecordError, match="given:    one whose parts do not fit"):
            OptimizerRecord.from_named(ModuleRecord(named.entries, {**named.metadata, **change}, scalars=named.scalars))
    with pytest.raises(RecordError, match="was stepped -1 times"):
        OptimizerRecord.from_named(
            ModuleRecord(named.entries, named.metadata, scalars=dict.fromkeys(named.scalars, -1))
        )
    with pytest.raises(RecordError, match="a is a number and a record"):
        LrSchedulerRecord.from_named(ModuleRecord({}, {"record": "lr_scheduler"}, scalars={"a": 1, "a.b": 2}))


def test_a_model_by_recorder_as_in_the_book(tmp_path: Path) -> None:
    model, _ = trained(1)
    path = model.save_file(tmp_path / "model", CompactRecorder())
    assert path == tmp_path / "model.mpk"
    loaded = LinearConfig(3, 2).init(Device.cpu()).load_file(tmp_path / "model", CompactRecorder(), DEVICE)
    assert loaded.weight.device is DEVICE
    halved = model.weight.val().into_data().array.astype(np.float16)
    assert np.array_equal(loaded.weight.val().into_data().array, halved.astype(np.float32))
    plain = LinearConfig(3, 2).init(Device.cpu()).load_file(model.save_file(tmp_path / "plain"), device=DEVICE)
    assert plain.weight.device is DEVICE
