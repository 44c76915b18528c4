"""`burn-torch cache`: what compiling and measuring left on the disk, and how to remove it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from burn_torch.core.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from burn_torch.backend.libtorch.caches import Cache

HELP: Final = "show how large the caches of kernels and timings are, and clear them"
DESCRIPTION: Final = """\
Lists what compiling and measuring left on the disk: programs, kernels, timings, and what Triton compiled.  `clear`
removes programs and kernels, which runs write again; timings and Triton's cache are removed where they are named.
"""
EXAMPLES: Final = """\
examples:
  burn-torch cache
  burn-torch cache --json
  burn-torch cache clear                 asks first
  burn-torch cache clear timings --yes
"""

NAMES: Final = ("programs", "kernels", "timings", "triton")
WRITTEN_AGAIN: Final = NAMES[:2]
"""Caches that cost no more than a compilation; timings cost minutes on a GPU, and Triton's cache has other users."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "action", nargs="?", choices=("list", "clear"), default="list", help="what to do (default: list)"
    )
    parser.add_argument(
        "names", metavar="CACHE", nargs="*", help=f"of {', '.join(NAMES)} (clear: {' and '.join(WRITTEN_AGAIN)})"
    )
    parser.add_argument("--yes", action="store_true", help="clear without asking")
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Lists caches or clears them."""
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        raise ConfigError(
            f"there is no cache {unknown[0]!r}",
            given=" ".join(args.names),
            expected=", ".join(NAMES),
            mend="name one of those",
        )
    if args.yes and args.action != "clear":
        raise ConfigError("--yes is for clear", given="--yes alone", expected="clear --yes", mend="leave --yes out")
    return _clear(args) if args.action == "clear" else _list(args)


def _list(args: argparse.Namespace) -> int:
    caches = _measure(args.names or NAMES)
    print(json.dumps([_describe(cache) for cache in caches], indent=2) if args.json else _table(caches))
    return 0


def _clear(args: argparse.Namespace) -> int:
    from burn_torch.backend.libtorch.caches import clear_cache

    caches = _measure(dict.fromkeys(args.names or WRITTEN_AGAIN))
    if not args.yes and not _ask_user(caches):
        print("nothing was removed", file=sys.stderr)
        return 1
    for cache in caches:
        try:
            clear_cache(cache.name)
        except OSError as err:
            raise _fault(cache.name, err) from err
    left = _measure([cache.name for cache in caches])  # the file of timings stays
    removed = [a._replace(size_bytes=max(a.size_bytes - b.size_bytes, 0)) for a, b in zip(caches, left, strict=True)]
    print(json.dumps([_describe(cache) for cache in removed], indent=2) if args.json else f"removed {_total(removed)}")
    return 0


def _ask_user(caches: Sequence[Cache]) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(
            "cache clear: nothing is removed without a yes",
            given="no --yes, and no terminal to ask on",
            expected="--yes",
            mend="look at `burn-torch cache`, then add --yes",
        )
    print(_table(caches), file=sys.stderr)
    print(f"remove {_total(caches)}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _measure(names: Sequence[str] | dict[str, None]) -> list[Cache]:
    from burn_torch.backend.libtorch.caches import measure_cache

    caches = []
    for name in names:
        try:
            caches.append(measure_cache(name))
        except (OSError, RuntimeError) as err:  # RuntimeError: there is no home folder
            raise _fault(name, err) from err
    return caches


def _fault(name: str, err: Exception) -> ArtifactError:
    return ArtifactError(
        f"the cache of {name} cannot be opened",
        given=str(err),
        expected="a folder that this user can read and write",
        mend="BURN_TORCH_CACHE, BURN_KERNELS_CACHE and TRITON_CACHE_DIR name other folders",
    )


def _describe(cache: Cache) -> dict[str, object]:
    return {
        "name": cache.name,
        "folders": [str(folder) for folder in cache.folders],
        "entries": cache.entries,
        "bytes": cache.size_bytes,
    }


def _table(caches: Sequence[Cache]) -> str:
    from burn_torch.cli.one_step import size
    from burn_torch.cli.runs import aligned

    rows = [
        (cache.name, str(cache.entries), size(cache.size_bytes), ", ".join(map(str, cache.folders))) for cache in caches
    ]
    return aligned([("CACHE", "ENTRIES", "SIZE", "FOLDER"), *rows])


def _total(caches: Sequence[Cache]) -> str:
    from burn_torch.cli.one_step import size

    parts = " and ".join(f"{cache.entries} of {cache.name}" for cache in caches)
    return f"{parts}, {size(sum(cache.size_bytes for cache in caches))}"
