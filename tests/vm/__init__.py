"""Boots of real kernels: which, how, and what is tested inside."""
