"""The meaning as code: slow, obvious, row by row.

Owns: what every query answers. Must not know: the fast code. Imported by tests and its own host only.
Enter at: ``evaluator``.
"""
