"""Batch normalisation, with the statistics of the batch or with given ones.

Rows keep no state: `batch_norm` gives the mean and the variance that it used, and the layer updates its running
statistics from them.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from burn_torch.core.dtype import FLOAT, DType
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.normalisation import (
    _affine_samples,
    _alive,
    _channels,
    _check_affine,
    _in_float32,
    _like,
    _mean,
    _rsqrt,
    _scaled,
    _statistics,
    _wide,
    _wide_array,
)
from burn_torch.ops.op import Call, Number, dtype_fault, op, shape_fault
from burn_torch.ops.reductions import sum
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import sample, uniform
from burn_torch.ops.shapes import reshape

aten = torch.ops.aten
