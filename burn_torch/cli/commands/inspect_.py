"""`burn-torch inspect FILE`: what a file of tensors or a run holds, without loading or executing any of it."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from burn_torch.core.wording import counted

if TYPE_CHECKING:
    from burn_torch.record.listing import Listed, Listing

HELP: Final = "show what a file of tensors holds, without executing any of it"
DESCRIPTION: Final = """\
Shows format, version, metadata and every tensor of a file: safetensors (also in shards), bpk, mpk, json, bin, plain or
gzipped, what torch.save wrote, ONNX, a checkpoint, or the directory of a run.

Nothing of the file is executed: of a pickle, the names that it wants called are listed.  Of a file above 256 MiB only
headers are read; --check compares the checksum all the same.
"""
_SHOWN: Final = 200
"""Characters of a text; --json has all of it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a file, or the directory of a run")
    parser.add_argument("--check", action="store_true", default=None, help="compare the checksum of a large file too")
    parser.add_argument("--json", action="store_true", help="one JSON object, for scripts")


def run(args: argparse.Namespace) -> int:
    """Prints the listing."""
    from burn_torch.cli.onnx_file import listing_of_onnx, looks_like_onnx
    from burn_torch.record.listing import listing_of

    if args.file.is_dir():
        from burn_torch.cli.run_listing import listing_of_run

        listing = listing_of_run(args.file, args.check)
    elif looks_like_onnx(args.file):
        listing = listing_of_onnx(args.file)
    else:
        listing = _with_checkpoint(listing_of(args.file, check=args.check))
    if args.json:
        print(json.dumps(_as_json(listing), indent=2))
    else:
        for line in _lines(listing):
            print(line)
    return 0


def _with_checkpoint(listing: Listing) -> Listing:
    """Returns what a checkpoint says of itself in words, in the place of its JSON."""
    from burn_torch.cli.run_listing import checkpoint_words

    words = checkpoint_words(listing)
    if words is None:
        return listing
    rest = {name: text for name, text in listing.metadata.items() if name != "checkpoint"}
    return replace(listing, format=f"checkpoint in {listing.format}", metadata={**rest, **words})


def _as_json(listing: Listing) -> dict[str, object]:
    tensors = [
        {
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "bytes": tensor.nbytes,
            "same_as": tensor.same_as,
            "about": tensor.about,
        }
        for tensor in listing.tensors
    ]
    return {
        "path": listing.path,
        "format": listing.format,
        "version": listing.version,
        "file_bytes": listing.file_bytes,
        "checksum": listing.checksum,
        "metadata": dict(listing.metadata),
        "scalars": dict(listing.scalars),
        "asks_for": list(listing.asks_for),
        "notes": list(listing.notes),
        "tensors": tensors,
        "totals": {
            "tensors": len(tensors),
            "elements": listing.elements,
            "bytes": listing.tensor_bytes,
            "dtypes": listing.dtypes,
        },
    }


def _lines(listing: Listing) -> list[str]:
    about = [listing.format, listing.version, f"{listing.file_bytes:,} bytes"]
    if listing.checksum != "none":
        about.append(f"checksum {listing.checksum}")
    lines = [f"{shown(listing.path)}: {', '.join(filter(None, about))}"]
    lines += _table("metadata", dict(listing.metadata))
    lines += _table("scalars", {name: repr(value) for name, value in listing.scalars.items()})
    if listing.asks_for:
        lines += ["asks for, beyond tensors", *(f"  {shown(name)}" for name in listing.asks_for)]
    if listing.tensors:
        lines += ["tensors", *_tensor_lines(listing.tensors)]
    kinds = ", ".join(f"{shown(name)} x {count}" for name, count in sorted(listing.dtypes.items()))
    sizes = ((len(listing.tensors), "tensor"), (listing.elements, "value"), (listing.tensor_bytes, "byte"))
    lines.append(
        ", ".join(counted(number, noun, grouped=True) for number, noun in sizes) + (f" ({kinds})" if kinds else "")
    )
    return lines + [f"note: {shown(note)}" for note in listing.notes]


def _table(title: str, values: dict[str, str]) -> list[str]:
    names = {shown(name): shown(text) for name, text in values.items()}
    width = max(map(len, names), default=0)
    return [title, *(f"  {name:{width}}  {text}" for name, text in names.items())] if names else []


def _tensor_lines(tensors: tuple[Listed, ...]) -> list[str]:
    rows = []
    for tensor in tensors:
        size = "?" if tensor.nbytes is None else f"{tensor.nbytes:,}"
        shape = f"({', '.join(map(str, tensor.shape))}{',' if len(tensor.shape) == 1 else ''})"
        end = f"= {shown(tensor.same_as)}" if tensor.same_as is not None else shown(tensor.about)
        rows.append((shown(tensor.name), shown(tensor.dtype), shape, size, end))
    a, b, c, d = (max(len(row[i]) for row in rows) for i in range(4))
    return [
        f"  {name:{a}}  {dtype:{b}}  {shape:{c}}  {size:>{d}}  {end}".rstrip() for name, dtype, shape, size, end in rows
    ]


def shown(text: str) -> str:
    """Text for a terminal: what a file says cannot move the cursor or colour anything, and is of bounded length."""
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"
    return cut if cut.isprintable() else cut.encode("unicode_escape").decode()
