"""Defines what tests of losses share: values and gradients as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.nn.twins import array, tensor

Rng = np.random.Generator


TIGHT = 1e-12


def numbers(x: Any) -> Any:
    return array(x).tolist()


def differentiated(loss: Any, *inputs: Any, forward: str = "forward_no_reduction") -> tuple[Any, list[Any]]:
    """The losses, and the gradients of their sum for all float inputs."""
    tracked = [tensor(x).require_grad() if np.asarray(x).dtype.kind == "f" else tensor(x) for x in inputs]
    losses = getattr(loss, forward)(*tracked)
    grads = losses.sum().backward()
    input_grads = [x.grad(grads) for x in tracked if x.is_require_grad()]
    return array(losses), [None if g is None else array(g) for g in input_grads]


def signs(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    return rng.choice([-1.0, 1.0], shape)
