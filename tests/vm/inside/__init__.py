"""Tests that run inside a guest, as root, on its kernel."""
