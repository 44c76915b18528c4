"""`burn-torch export RUN_OR_FILE --to onnx|safetensors|bpk`: a trained model as a file for others."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from burn_torch.cli import devices, options, registry
from burn_torch.cli.artifacts import add_checkpoint, saved_run, trained_model
from burn_torch.core.errors import ArgumentError, BurnTorchError, ConfigError

if TYPE_CHECKING:
    from burn_torch.core.data import TensorData
    from burn_torch.module import ModuleRecord
    from burn_torch.module.record import RecordEntry

HELP: Final = "write a trained model as an ONNX file, or its weights as safetensors or bpk"
DESCRIPTION: Final = """\
Writes the trained model of a run as an ONNX file, or its weights in another format.

RUN_OR_FILE is a directory that `burn-torch train` kept, or, for safetensors and bpk, a file of weights or an ONNX
file.  An ONNX file takes batches of any size, unless --batch fixes one.  It is checked by onnx, and compared with the
model in onnxruntime where that is installed.
"""
EXAMPLES: Final = """\
examples:
  burn-torch export artifacts/digits --to onnx                 batches of any size
  burn-torch export artifacts/digits --to onnx --batch 1 --half --out digits.onnx
  burn-torch export artifacts/digits --to bpk --out digits.bpk
"""

FORMATS: Final = ("onnx", "safetensors", "bpk")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("source", type=Path, metavar="RUN_OR_FILE", help="a run of `burn-torch train`, or a file")
    parser.add_argument("--to", choices=FORMATS, required=True, metavar="FORMAT", help=f"one of {', '.join(FORMATS)}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write (default: beside what is exported)")
    parser.add_argument(
        "--batch", type=options.positive, metavar="N", help="ONNX: batches of N items alone (default: of any number)"
    )
    parser.add_argument("--opset", type=options.positive, metavar="N", help="ONNX: opset of the file (18)")
    parser.add_argument("--half", action="store_true", help="store floats as float16")
    add_checkpoint(parser)
    parser.add_argument("--recipe", metavar="FILE.py", help="the recipe that was trained, if it is not a built-in one")


def run(args: argparse.Namespace) -> int:
    """Writes the file, and says where it is and how it compares."""
    _require_fitting(args)
    out = _target(args)
    if args.to == "onnx":
        print(_onnx(args, out))
    else:
        _half(_record(args), args.half).save(out)
    print(f"wrote {out}")
    return 0


def _require_fitting(args: argparse.Namespace) -> None:
    """Raises: ConfigError for options that do not belong together."""
    words = [
        name
        for name, value in (("--batch", args.batch), ("--opset", args.opset))
        if value is not None and args.to != "onnx"
    ]
    if words:
        raise ConfigError(
            f"{' and '.join(words)} belong{'' if len(words) > 1 else 's'} to ONNX files",
            given=f"--to {args.to} with {' '.join(words)}",
            expected="--to onnx with them",
            mend="leave them out",
        )
    if args.to == "onnx" and args.source.is_file():
        raise ConfigError(
            "an ONNX file needs to know what is computed, not the weights alone",
            given=str(args.source),
            expected="the directory of a run, whose recipe has the model",
            mend="name that directory, or export the model in Python: burn_torch.onnx.export(model, inputs, path)",
        )


def _target(args: argparse.Namespace) -> Path:
    """Returns where to write.  Raises: ConfigError for another ending, or the file that is exported itself."""
    source = args.source / "model.safetensors" if args.source.is_dir() else args.source
    half = "-half" if args.half else ""
    out = source.with_name(f"{source.stem}{half}.{args.to}") if args.out is None else args.out
    if out.suffix != f".{args.to}" or (out.exists() and source.exists() and out.samefile(source)):
        raise ConfigError(
            "the exported file cannot have this name",
            given=f"{out}",
            expected=f"a name that ends in .{args.to}, other than {source}",
            mend=f"give another --out, such as {source.stem}-exported.{args.to}",
        )
    return Path(out)


def _onnx(args: argparse.Namespace, out: Path) -> object:
    from burn_torch.onnx import export
    from burn_torch.onnx.exporting.request import DEFAULT_OPSET

    recipe, config = saved_run(args.source, None if args.recipe is None else registry.recipe(args.recipe))
    device = devices.device("cpu")
    model = trained_model(recipe, config, device, args, args.source)
    inputs = recipe.example_inputs(config, device)
    if args.batch is not None:
        from burn_torch.train.strategies.parts import map_tensors

        inputs = map_tensors(inputs, partial(_items, args.batch))
    if args.half:
        from burn_torch.core.dtype import DType
        from burn_torch.onnx.exporting.tracing import converted
        from burn_torch.record import DTypePolicy

        record = _half(model.into_record(), True)
        model = model.load_record(record.with_dtype_policy(DTypePolicy.FromRecord))
        inputs = converted(inputs, DType.F16)
    try:
        return export(
            model,
            inputs,
            out,
            dynamic_batch=args.batch is None,
            opset=DEFAULT_OPSET if args.opset is None else args.opset,
            metadata={"recipe": recipe.name},
        )
    except ArgumentError as err:  # what is wrong was said on the command line
        raise ConfigError(str(err)) from err
    except BurnTorchError as err:
        text = "\n".join([str(err), *getattr(err, "__notes__", ())])
        if args.batch is not None or "dynamic ax" not in text:
            raise
        raise ConfigError(
            f"the model of {recipe.name} cannot take batches of any size",
            given=_fault_of(err),
            expected="the same operations whatever the size of the batch, as a forward that asks for no number has"
            " them",
            mend=f"--batch {_size(inputs)} writes it for batches of {_size(inputs)} alone",
        ) from err


def _items(count: int, x: object) -> object:
    """The first `count` items of an input, from the start again where it has fewer."""
    from burn_torch.tensor import Tensor

    if not isinstance(x, Tensor) or not x.ndim:
        return x
    return Tensor.cat([x] * -(-count // x.shape[0]), 0).narrow(0, 0, count)


def _size(inputs: object) -> int:
    """The size of the batch of the example."""
    from burn_torch.train.strategies.parts import map_tensors

    sizes: list[int] = []
    map_tensors(inputs, lambda x: sizes.append(x.shape[0] if x.ndim else 1))
    return sizes[0] if sizes else 1


def _fault_of(err: BurnTorchError) -> str:
    """Returns what an error says was given, after its own first line."""
    first, *rest = str(err).splitlines()
    faults = [line.partition("given:")[2].strip() for line in rest if line.strip().startswith("given:")]
    return ": ".join([first, *faults[:1]])


def _record(args: argparse.Namespace) -> ModuleRecord:
    """The weights of a run, of a file of weights, or of an ONNX file."""
    from burn_torch.module import ModuleRecord

    if args.source.is_dir():
        recipe, config = saved_run(args.source, None if args.recipe is None else registry.recipe(args.recipe))
        model: Any = trained_model(recipe, config, devices.device("cpu"), args, args.source)
        return ModuleRecord.from_module(model)
    if args.source.suffix == ".onnx":
        from burn_torch.onnx import load

        return ModuleRecord.from_module(load(args.source))
    return ModuleRecord.load(args.source)


def _half(record: ModuleRecord, wanted: bool) -> ModuleRecord:
    """The record with floats as float16.  Raises: RecordError for numbers beyond its range."""
    if not wanted:
        return record
    from dataclasses import replace

    from burn_torch.core.dtype import DType
    from burn_torch.record.precision import PrecisionSettings

    precision = PrecisionSettings(float=DType.F16)

    def read(key: str, entry: RecordEntry) -> TensorData:
        return precision.convert(key, entry.read())

    entries = {
        key: replace(entry, dtype=precision.stored(entry.dtype), read=partial(read, key, entry))
        for key, entry in record.entries.items()
    }
    return replace(record, entries=entries)
