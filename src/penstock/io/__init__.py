"""Files in and out: CSV, JSON lines, Parquet and Arrow.

Owns: the formats of files, and texts that come bit by bit.
Must not know: databases. Enter at: ``readers``, ``writers``.
"""
