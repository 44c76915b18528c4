"""`burn-torch convert IN OUT`: a file of tensors in another format, under other names, with other floats."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from burn_torch.cli import registry
from burn_torch.cli.artifacts import bounded_by, saved_run
from burn_torch.core.errors import ArtifactError, ConfigError
from burn_torch.core.wording import counted

if TYPE_CHECKING:
    from burn_torch.core.dtype import DType
    from burn_torch.module import ModuleRecord

HELP: Final = "write a file of tensors in another format"
DESCRIPTION: Final = """\
Writes the tensors of a file in another format.  The content of IN says what it is: safetensors (also in shards), bpk,
mpk, json, bin, plain or gzipped, what torch.save wrote, or ONNX (its weights).  The ending of OUT chooses the format:
.safetensors, .safetensors.index.json, .bpk, .mpk, .mpk.gz, .json, .json.gz, .bin, .bin.gz.

Tensors go through one at a time, and OUT is whole or not there.  First --only chooses, then --remap renames, in the
order given ($1 is what the first brackets found), then floats get the type of --dtype.  Nothing of IN is executed.

Layouts and names of PyTorch differ by the class of each layer, which no file says: a matrix of Linear is turned, one of
Embedding is not.  So --from-pytorch and --to-pytorch take the directory of a run, whose model knows its layers.
"""
_FLOATS: Final = ("f64", "f32", "f16", "bf16")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("input", type=Path, metavar="IN", help="the file to read")
    parser.add_argument("output", type=Path, metavar="OUT", help="the file to write")
    parser.add_argument(
        "--remap", action="append", default=[], metavar="RE=TO", help="rename keys; may be given several times"
    )
    parser.add_argument("--only", action="append", default=[], metavar="RE", help="only keys in which this is found")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--half", action="store_true", help="floats as f16: short for --dtype f16")
    kinds.add_argument("--dtype", choices=_FLOATS, metavar="DTYPE", help=f"floats as {', '.join(_FLOATS)}")
    twins = parser.add_mutually_exclusive_group()
    twins.add_argument("--from-pytorch", type=Path, metavar="RUN", help="IN has PyTorch's words for the model of a run")
    twins.add_argument("--to-pytorch", type=Path, metavar="RUN", help="OUT gets PyTorch's words for the model of a run")
    parser.add_argument("--recipe", metavar="FILE.py", help="the recipe of that run, if it is not a built-in one")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it is there")


def run(args: argparse.Namespace) -> int:
    """Writes the file and says what is in it."""
    from burn_torch.cli.onnx_file import looks_like_onnx, record_of_onnx
    from burn_torch.record.conversion import changed, from_pytorch, read_any, to_pytorch, write_any

    remap = [_pair(text) for text in args.remap]
    if args.output.exists() and not args.overwrite:
        raise ArtifactError(
            "the output file exists already",
            given=str(args.output),
            expected="a path that does not exist yet",
            mend="choose another path, or add --overwrite",
        )
    record = record_of_onnx(args.input) if looks_like_onnx(args.input) else read_any(args.input)
    record = changed(record, remap=remap, only=args.only)
    if args.from_pytorch is not None:
        record = from_pytorch(record, _model(args.from_pytorch, args, record), args.input)
    elif args.to_pytorch is not None:
        record = to_pytorch(record, _model(args.to_pytorch, args, record), args.output)
    dtype = "f16" if args.half else args.dtype
    record = changed(record, dtype=None if dtype is None else _dtype(dtype))
    write_any(record, args.output)
    size = sum(entry.nbytes for entry in {id(entry): entry for entry in record.entries.values()}.values())
    print(f"wrote {args.output}: {counted(len(record), 'tensor')}, {counted(size, 'byte', grouped=True)} of values")
    return 0


def _dtype(name: str) -> DType:
    from burn_torch.core.dtype import DType

    return DType.of(name)


def _pair(text: str) -> tuple[str, str]:
    """Pattern and replacement, which the last = divides: a pattern may hold some, a name of a tensor has none."""
    pattern, equals, to = text.rpartition("=")
    if not equals or not pattern:
        raise ConfigError(
            "--remap needs a pattern and its replacement",
            given=f"--remap {text}",
            expected="RE=TO, with an = between them",
            mend="for example --remap '^bert\\.(.*)=encoder.$1'; in a shell, with quotes",
        )
    return pattern, to


def _model(run: Path, args: argparse.Namespace, record: ModuleRecord) -> Any:
    from burn_torch.tensor import Device

    recipe, config = saved_run(run, None if args.recipe is None else registry.recipe(args.recipe))
    elements = sum(math.prod(entry.shape) for entry in record.entries.values())
    with bounded_by(args.input, run, elements):
        return recipe.model(config, Device.cpu())
