"""Grids of coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.tensor._arguments import sizes, truth
from burn_torch.tensor.apply import require_tensor
from burn_torch.tensor.options import GridIndexing, GridSparsity, IndexPos
from burn_torch.tensor.tensor import Tensor

__all__ = ["affine_grid_2d", "affine_grid_3d", "meshgrid", "meshgrid_stack"]


def meshgrid(
    tensors: Sequence[Tensor],
    indexing: GridIndexing | str = GridIndexing.Matrix,
    sparsity: GridSparsity | str = GridSparsity.Dense,
) -> list[Tensor]:
    """For each vector its value at every point of the grid that they span.

    Shapes: n vectors (s0,), (s1,), ... -> n tensors (s0, s1, ...); the first two axes change places for "xy".
    """
    items = list(tensors)
    if not items or any(x.spec.ndim != 1 for x in items):
        raise told(
            ShapeError,
            "a grid is spanned by vectors",
            given=", ".join(str(x.spec) for x in items) or "no tensor",
            expected="one or more tensors of one axis",
            mend="x.flatten() makes a vector",
        )
    order = list(range(len(items)))
    if GridIndexing.of(indexing) is GridIndexing.Cartesian and len(items) > 1:
        order[0], order[1] = 1, 0
    shape = tuple([items[i].shape[0] for i in order])
    grids = []
    for i, x in enumerate(items):
        at = order.index(i)
        along = x.reshape(tuple([x.shape[0] if j == at else 1 for j in range(len(items))]))
        grids.append(along if GridSparsity.of(sparsity) is GridSparsity.Sparse else along.expand(shape))
    return grids


def meshgrid_stack(tensors: Sequence[Tensor], index_pos: IndexPos | str = IndexPos.Last) -> Tensor:
    """The coordinates of every point of a grid, along a new axis in front or at the end."""
    return Tensor.stack(meshgrid(tensors), 0 if IndexPos.of(index_pos) is IndexPos.First else -1)


def affine_grid_2d(transform: Tensor, dims: Sequence[int], align_corners: bool = True) -> Tensor:
    """Returns where each pixel of an image lands under an affine map, as `grid_sample_2d` reads it.

    Coordinates run from -1 to 1 over the centres of the outer pixels, as in Burn; with align_corners false over their
    outer edges, as in PyTorch's default.  An axis of one pixel is at 0.
    Shapes: transform (batch, 2, 3), dims (batch, channels, height, width) -> (batch, height, width, 2), (x, y) last.
    PyTorch: torch.nn.functional.affine_grid.
    """
    return _affine_grid(transform, dims, align_corners, ("height", "width"))


def affine_grid_3d(transform: Tensor, dims: Sequence[int], align_corners: bool = True) -> Tensor:
    """Returns where each voxel of a volume lands under an affine map; see `affine_grid_2d`.

    Shapes: transform (batch, 3, 4), dims (batch, channels, depth, height, width) -> (batch, depth, height, width, 3),
    (x, y, z) last.
    PyTorch: torch.nn.functional.affine_grid.
    """
    return _affine_grid(transform, dims, align_corners, ("depth", "height", "width"))


def _affine_grid(transform: Tensor, dims: Sequence[int], align_corners: bool, names: tuple[str, ...]) -> Tensor:
    require_tensor(transform, "transform")
    size, n, aligned = sizes(dims), len(names), truth(align_corners, "align_corners")
    if len(size) != n + 2 or transform.shape != (size[0], n, n + 1):
        raise told(
            ShapeError,
            "the transform does not fit the image",
            given=f"transform {transform.spec}, dims {size}",
            expected=f"transform (batch, {n}, {n + 1}) and dims (batch, channels, {', '.join(names)})",
            mend=f"expand one transform over the batch: transform.expand(batch, {n}, {n + 1})",
        )
    batch, _, *spatial = size
    coordinates = []
    for axis in reversed(range(n)):  # x, which runs along the last axis, comes first
        along = _coordinates(transform, spatial[axis], aligned)
        shape = [spatial[axis] if i == axis else 1 for i in range(n)]
        coordinates.append(along.reshape((*shape, 1)).expand((*spatial, 1)))
    points = Tensor.cat([*coordinates, coordinates[0].ones_like()], n).reshape((1, math.prod(spatial), n + 1))
    return points.matmul(transform.transpose()).reshape((batch, *spatial, n))


def _coordinates(like: Tensor, size: int, align_corners: bool) -> Tensor:
    device = like.device.no_grad()
    steps = Tensor.arange(size, (device, DType.I64)).cast(like.dtype)
    if size == 1:
        return steps
    return steps * (2.0 / (size - 1)) - 1.0 if align_corners else (steps * 2.0 + 1.0) * (1.0 / size) - 1.0
