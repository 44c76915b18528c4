"""What users hold: Tensor, Device, Gradients."""

from burn_torch.tensor.device import Device
from burn_torch.tensor.gradients import Gradients
from burn_torch.tensor.tensor import Tensor

__all__ = ["Device", "Gradients", "Tensor"]
