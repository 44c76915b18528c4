"""The node cases that the onnx package makes: each operator with inputs and the outputs that the standard asks for.

`python -m tests.onnx.node_cases --write` runs them all and writes the list of those that pass.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from burn_torch import BurnTorchError, Device, DType, Tensor, TensorData
from burn_torch.onnx import load
from burn_torch.onnx.tensors import tensor_data

PASSING = Path(__file__).with_name("node_cases_passing.txt")

RANDOM = frozenset(
    {
        *(f"test_bernoulli{kind}{form}" for kind in ("", "_double", "_seed") for form in ("", "_expanded")),
        *(f"test_training_dropout{kind}{mask}" for kind in ("", "_default") for mask in ("", "_mask")),
    }
)
"""Cases whose outputs are drawn from a generator that nobody else has: their values cannot be met."""

BF16_EPS = 2.0**-7


@dataclass(frozen=True)
class Verdict:
    """How a case went: "pass", "refused" (an error of ours), "wrong", "crash"."""

    name: str
    kind: str
    why: str = ""
    operator: str = ""


class NotOurs(Exception):
    """An input of an element type that tensors here do not have."""


def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, while the cases work their outputs out
        from onnx.backend.test.case.node import collect_testcases

        return list(collect_testcases(None))


def is_standard(case: Any) -> bool:
    """Returns whether only operators of ai.onnx occur."""
    return all(entry.domain in ("", "ai.onnx") for entry in case.model.opset_import)


def run(case: Any) -> Verdict:
    operator = case.model.graph.node[0].op_type
    try:
        model = load(case.model.SerializeToString())
        for inputs, outputs in case.data_sets:
            results = model.forward(*[value_of(x) for x in inputs])
            results = results if isinstance(results, tuple) else (results,)
            assert len(results) == len(outputs), f"{len(results)} outputs for {len(outputs)}"
            for got, want in zip(results, outputs, strict=True):
                compare(got, want, case.rtol, case.atol)
    except AssertionError as err:
        return Verdict(case.name, "wrong", str(err).strip()[:500], operator)
    except (BurnTorchError, NotOurs) as err:
        return Verdict(case.name, "refused", "\n".join([str(err), *getattr(err, "__notes__", ())]), operator)
    except Exception as err:
        return Verdict(case.name, "crash", f"{type(err).__name__}: {err}", operator)
    return Verdict(case.name, "pass", "", operator)


def value_of(x: Any) -> Any:
    if x is None:
        return None
    if isinstance(x, list):
        return [value_of(part) for part in x]
    if hasattr(x, "data_type"):
        return Tensor.from_data(tensor_data(x, None), Device.cpu())
    array = np.asarray(x)
    if array.dtype.name == "bfloat16":
        return Tensor.from_data(TensorData(array.view(np.uint16), DType.BF16), Device.cpu())
    if array.dtype.kind not in "fiub" or array.dtype.itemsize < 1:
        raise NotOurs(str(array.dtype))
    return Tensor.from_data(np.ascontiguousarray(array).reshape(array.shape), Device.cpu())


def compare(got: Any, want: Any, rtol: float, atol: float) -> None:
    """Equal types and shapes; integers equal, floats within the case's tolerance or two units of the largest value."""
    if want is None:
        assert got is None
        return
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            compare(one, other, rtol, atol)
        return
    data = got.into_data()
    values = data.values
    if hasattr(want, "data_type"):
        expected = tensor_data(want, None)
        assert data.dtype is expected.dtype, f"{data.dtype} for {expected.dtype}"
        want = expected.values
    want = np.asarray(want)
    if want.dtype.name == "bfloat16":
        assert data.dtype is DType.BF16, data.dtype
        want = want.astype(np.float32)
    if data.dtype is DType.BF16:
        eps = BF16_EPS
    else:
        assert values.dtype == want.dtype, f"{values.dtype} for {want.dtype}"
        eps = float(np.finfo(want.dtype).eps) if want.dtype.kind == "f" else 0.0
    assert values.shape == want.shape, f"{values.shape} for {want.shape}"
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(values, want)
        return
    finite = np.abs(want[np.isfinite(want)])
    scale = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(values, want, rtol=max(rtol or 0.0, 2 * eps), atol=max(atol or 0.0, 2 * eps * scale))


def passing() -> set[str]:
    return set(PASSING.read_text().split())


def verdicts() -> Iterator[Verdict]:
    for case in cases():
        yield run(case)


if __name__ == "__main__":
    judged = list(verdicts())
    good = sorted(verdict.name for verdict in judged if verdict.kind == "pass")
    for verdict in judged:
        if verdict.kind != "pass":
            print(verdict.kind, verdict.name, verdict.operator, verdict.why.replace("\n", " | ")[:300])
    print(f"{len(good)} of {len(judged)} cases pass")
    if "--write" in sys.argv:
        PASSING.write_text("\n".join(good) + "\n")
