"""Operations that become one kernel, and the order in which kernels run."""
