"""Kernels: pure functions over Arrow and numpy arrays, and the flat state they work on. Imported only when needed."""
