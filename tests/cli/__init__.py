"""Whole-program tests: the kilter binary against fake roots, and on the real kernel as root."""
