"""Kernels: pure functions over Arrow and numpy arrays, and the flat state they work on. Imported only when needed.

Owns: pure functions over Arrow and numpy arrays, compiled where that pays.
Must not know: operators, queries. Enter at: ``expressions``.
"""
