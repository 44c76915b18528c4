"""The gradient of an embedding table: padding, frequencies, and what the launcher refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from burn_kernels import KernelArgumentError, KernelDTypeError, KernelError, KernelShapeError, embedding
from burn_kernels.launch import H200

DY, INDICES = torch.ones(4, 6), torch.tensor([0, 2, 2, 1])


def test_rows_that_no_token_names_are_zero_and_padding_too() -> None:
    dw = embedding.backward(DY, INDICES, rows=4, padding_idx=1)
    assert dw[:, 0].tolist() == [1.0, 0.0, 2.0, 0.0]
    scaled = embedding.backward(DY, INDICES, rows=4, scale_by_frequency=True)
    assert scaled[:, 0].tolist() == [1.0, 1.0, 1.0, 0.0]


def test_the_twin_of_no_tokens_is_not_torchs_which_launches_for_none() -> None:
    twin = embedding.SPEC.twin(torch.ones(0, 4, dtype=torch.float16), torch.ones(0, dtype=torch.int64), rows=6)
    assert torch.equal(twin, torch.zeros(6, 4, dtype=torch.float16))


def test_candidates_begin_with_the_default() -> None:
    for cols in (1, 49, 768, 4096):
        configs = embedding.candidates(cols, 2, H200)
        assert embedding.default(cols, 2, H200) == configs[0]
        assert len(set(configs)) == len(configs)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            KernelShapeError,
            r"embedding backward: indices has another shape.*indices \(3,\).*indices \(4,\).*belong together",
            lambda: embedding.backward(DY, INDICES[:3], rows=4),
        ),
        (
            KernelDTypeError,
            r"embedding backward: indices are row numbers.*indices \(4,\) float32.*integers.*int64",
            lambda: embedding.backward(DY, INDICES.float(), rows=4),
        ),
        (
            KernelArgumentError,
            r"embedding backward: an option is outside.*rows 4, padding_idx -1.*padding_idx from 0.*from the front",
            lambda: embedding.backward(DY, INDICES, rows=4, padding_idx=-1),
        ),
        (
            KernelArgumentError,
            r"embedding backward: indices outside the table.*2 indices, the first 2.*from 0 to 1.*height of the table",
            lambda: embedding.backward(DY, INDICES, rows=2),
        ),
    ],
)
def test_refusals(error: type[KernelError], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        call()
