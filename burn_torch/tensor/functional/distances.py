"""How alike vectors are."""

from __future__ import annotations

import numpy as np

from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._arguments import real
from burn_torch.tensor.apply import require_tensor, widen
from burn_torch.tensor.linalg import norms
from burn_torch.tensor.tensor import Tensor

__all__ = ["cosine_similarity", "pairwise_distance", "pdist"]


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along an axis, which goes; see `linalg.cosine_similarity`."""
    cosines = norms.cosine_similarity(x1, x2, dim, eps)
    return cosines.squeeze_dim(dim if dim < 0 else dim - max(x1.ndim, x2.ndim))


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6) -> Tensor:
    """(sum of |x1 - x2 + eps|^p)^(1/p) over the last axis, which goes; p may be infinite.

    Shapes: x1, x2 (*batch, d) -> (*batch,).  Dtypes: any float, both the same; half types are summed in f32.
    PyTorch: torch.nn.functional.pairwise_distance.
    """
    require_tensor(x1, "x1")
    require_tensor(x2, "x2")
    return norms.lp_norm(widen(x1) - widen(x2) + real(eps, "eps"), p, -1).squeeze_dim(-1).cast(x1.dtype)


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of rows, i < j, in the order (0, 1), (0, 2), ..., (1, 2), ...

    Equal rows get no gradient.
    Shapes: x (n, d) -> (n (n - 1) / 2,).  Dtypes: any float; half types are summed in f32.
    PyTorch: torch.nn.functional.pdist; scipy.spatial.distance.pdist.
    """
    require_tensor(x)
    if x.ndim != 2:
        raise told(
            ShapeError,
            f"x has {x.ndim} axes",
            given=f"x {x.spec}",
            expected="(n, d), n vectors",
            mend="flatten all axes before the last into one",
        )
    wide, device = widen(x), x.device.no_grad()
    first, second = (wide.select(0, Tensor.from_data(rows, device)) for rows in np.triu_indices(x.shape[0], 1))
    return norms.lp_norm(first - second, p, -1).squeeze_dim(-1).cast(x.dtype)


word_functions(globals(), "functional")
