"""What batch norm and group norm share: kernels over (batch, channels, rest), and how tensors are cut for them."""
