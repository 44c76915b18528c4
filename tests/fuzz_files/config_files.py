"""Configurations."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.fuzz_files.mutations import json_changed, words_changed
from tests.fuzz_files.reader import Reader, either, read_all

__all__ = ["READERS"]


@cache
def _config() -> Any:
    from burn_torch.cli import registry

    return registry.recipe("digits").config


@cache
def config_seeds(toml: bool) -> tuple[bytes, ...]:
    from burn_torch.config.sources import to_toml
    from burn_torch.nn import TransformerEncoderConfig

    config = _config()()
    other = TransformerEncoderConfig(8, 16, 2, 1)
    if toml:
        return (
            to_toml(config, {}).encode(),
            b"hidden = 8\n[optimizer]\nlr = 1e-1\n[optimizer.algorithm.Adam]\nbeta_1 = 0.5\n",
        )
    return (config.to_json().encode(), other.to_json().encode())


def read_config(path: Path) -> None:
    """As a configuration, and as changes of one."""
    from burn_torch.config.sources import file_edits, from_sources
    from burn_torch.nn import TransformerEncoderConfig

    uses = [lambda: from_sources(_config()(), file_edits(path, _config()))]
    if path.suffix == ".json":
        uses += [lambda: _config().load(path), lambda: TransformerEncoderConfig.load(path)]
    read_all(*uses)


READERS: Final[dict[str, Reader]] = {
    "config json": Reader("m.json", lambda: config_seeds(False), read_config, either(words_changed, json_changed)),
    "config toml": Reader("m.toml", lambda: config_seeds(True), read_config, words_changed),
}
