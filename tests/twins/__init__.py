"""Numpy twins of the C++ kernels: the definition that the kernels equal bit for bit."""
