"""Ad-hoc SELECT: one statement, answered once by DuckDB over Arrow tables, with the values that CQL has.

Owns: what such a statement may name and call, and its limits.
Must not know: who asks, and where the tables come from. Enter at: ``AdHoc``.
"""

from penstock.server.adhoc.select import AdHoc

__all__ = ["AdHoc"]
