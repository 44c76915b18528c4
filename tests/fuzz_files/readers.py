"""Every reader of files, by name."""

from __future__ import annotations

from typing import Final

from tests.fuzz_files import (
    config_files,
    control_files,
    kernel_files,
    onnx_files,
    picture_files,
    pytorch_files,
    record_files,
    run_files,
    table_files,
)
from tests.fuzz_files.reader import Reader

__all__ = ["READERS"]

READERS: Final[dict[str, Reader]] = {
    **record_files.READERS,
    **pytorch_files.READERS,
    **onnx_files.READERS,
    **picture_files.READERS,
    **table_files.READERS,
    **config_files.READERS,
    **run_files.READERS,
    **control_files.READERS,
    **kernel_files.READERS,
}
