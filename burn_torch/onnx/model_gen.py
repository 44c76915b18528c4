"""ModelGen: from an ONNX file to a folder with a Python module and a record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from burn_torch.core.checking import checked
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ArgumentError, ArtifactError
from burn_torch.core.files import make_folder, write_atomic
from burn_torch.module import Param, ParamId, RunningState
from burn_torch.onnx.imported import module_of, on_device
from burn_torch.onnx.names import Names
from burn_torch.onnx.plan import plan_of
from burn_torch.onnx.reader import read_model
from burn_torch.onnx.report import Report, report_on
from burn_torch.onnx.source import RECORD, source_of
from burn_torch.tensor import Device, Tensor

__all__ = ["ModelGen", "as_tensor", "parameter", "state"]


@dataclass(frozen=True)
class ModelGen:
    """Writes an ONNX model as Python source and a record.

        ModelGen().input("m.onnx").out_dir("model/").run()

    gives `model/m.py` with a class `Model`, and `model/model.safetensors`.  The source needs no onnx package.
    """

    source: Path | None = None
    folder: Path | None = None
    memory_limit: int | None = None

    def input(self, path: str | Path) -> Self:
        """The ONNX file."""
        return replace(self, source=Path(path))

    def out_dir(self, path: str | Path) -> Self:
        """The folder to write to; made where it is absent."""
        return replace(self, folder=Path(path))

    def memory_limit_bytes(self, limit: int | None) -> Self:
        """How much memory constants that are worked out from others may take; see `burn_torch.onnx.load`."""
        return replace(self, memory_limit=limit)

    def report(self) -> Report:
        """Returns what the file holds and what of it cannot be imported; writes nothing."""
        return report_on(read_model(self._paths()[0]))

    def run(self) -> Path:
        """Writes the module and the record, each whole or not at all.  Returns: the path of the module.

        Raises: OnnxError as `load` does, before anything is written; ArtifactError where the folder cannot be
        written to.
        """
        source, folder = self._paths()
        model = read_model(source)
        report_on(model).check()
        plan = plan_of(model, self.memory_limit)
        text = source_of(plan)
        path = folder / f"{Names().unique(source.stem, 'model')}.py"
        try:
            make_folder(folder)
            module_of(plan, Device.cpu()).save_file(folder / RECORD)
            write_atomic(path, text.encode())
        except OSError as err:
            raise ArtifactError(
                "the imported model cannot be written",
                given=f"{folder}: {err.strerror or err}",
                expected="a folder that can be written to, with room for the files",
                mend="choose another folder",
            ) from err
        return path

    run_from_script = run
    run_from_cli = run

    def _paths(self) -> tuple[Path, Path]:
        if self.source is None or self.folder is None:
            raise ArgumentError(
                "ModelGen: something is missing",
                given=f"input {self.source}, out_dir {self.folder}",
                expected="both",
                mend='ModelGen().input("m.onnx").out_dir("model/").run()',
            )
        return self.source, self.folder


# -- what written modules call ----------------------------------------------------------------------------
@checked
def parameter(shape: tuple[int, ...], dtype: str, device: Device) -> Param:
    """A parameter of zeros, made when it is first read."""
    kind = DType.of(dtype)
    return Param.uninitialized(
        ParamId.new(), lambda where, _: Tensor.zeros(shape, (where, kind)), device, kind.is_float, shape, kind
    )


@checked
def state(shape: tuple[int, ...], dtype: str, device: Device) -> RunningState:
    """A value of zeros that training leaves as it is."""
    inner = device.no_grad()
    return RunningState(Tensor.zeros(shape, (inner, DType.of(dtype))))


@checked
def as_tensor(value: object, device: Device) -> object:
    """A value as a tensor where it is known on the host only; lists value by value."""
    return on_device(value, device)
