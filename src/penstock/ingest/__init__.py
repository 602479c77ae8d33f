"""The way in: what is decided once for a stream or a relation, whatever engine runs the queries.

Owns: instants, order within slack, lateness, arrival numbers, and when a change of a relation happens.
Must not know: queries' operators, engines. Enter at: ``streams``.
"""
