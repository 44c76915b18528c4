"""Doors to the tools of `burn_kernels` for the command line, which does not import it: tuning, checking."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from burn_torch.core.errors import ConfigError

__all__ = ["check_kernels", "kernel_command"]


def kernel_command(arguments: Sequence[str]) -> int:
    """`python -m burn_kernels` with these arguments; returns its exit status."""
    from burn_kernels.autotune.command import main

    return main(arguments)


def check_kernels(names: Sequence[str] | None, place: str) -> tuple[list[str], int, bool]:
    """Runs fused operations beside float64: what is wrong, how many calls were run, whether no kernel ran.

    Raises: ConfigError for a name that none of them has.
    """
    from burn_kernels.errors import KernelArgumentError
    from burn_kernels.torch import check

    try:
        report = check(ops=names, shapes=8, device=torch.device(place), offsets=place != "cpu")
    except KernelArgumentError as err:
        raise ConfigError(str(err)) from err
    return [str(finding) for finding in report.faulty], len(report.findings), report.reference_used
