"""The common part of batch norm and group norm: kernels over (batch, channels, rest), and the cut of their tensors."""
