"""Defines what a run says where values are not finite."""

from __future__ import annotations

import shlex

from burn_torch.core.errors import NonFiniteError
from burn_torch.train.anomaly.watch import Anomaly

__all__ = ["not_finite"]


def not_finite(anomaly: Anomaly | None, what: str, saved: str) -> NonFiniteError:
    """Returns what to raise where values are not finite.

    anomaly   where they came from, if that was found
    what      what showed it
    saved     which checkpoint there is
    """
    if anomaly is None:
        return NonFiniteError(
            "a value is not finite",
            given=f"{what}; run again, the steps before gave finite values",
            expected="finite values, and the same ones each time",
            mend=f"look for what is not the same each time: data changed in place, a sum in no fixed order; {saved}",
        )
    at, fault = anomaly.position, anomaly.fault
    step = f"in epoch {at.epoch}, batch {at.batch + 1} (step {at.iteration + 1} of the run)"
    if fault is None:
        return NonFiniteError(
            "a value is not finite",
            given=f"{', '.join(anomaly.unsound[:5])} {step}; {anomaly.reason}",
            expected="finite values",
            mend=f"a step that can be compiled would tell which operation it is; {saved}",
        )
    look = "look at what that operation reads"
    if anomaly.file is not None:
        look = f"burn-torch replay {shlex.quote(str(anomaly.file))} shows what it read"
    lines = [f"{fault} {step}", f"result {fault.values}"]
    lines += [f"line {fault.where}"] if fault.where else []
    lines += [f"which became NaN in {fault.became}"] if fault.became else []
    return NonFiniteError(
        "the first value that is not finite",
        given="\n            ".join(lines),
        expected="finite values",
        mend=f"{look}; {saved}",
    )
