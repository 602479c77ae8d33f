"""One graph of operators for all queries of a database: equal parts of queries are one part.

Owns: the operators of all queries, equal parts once; ``Programs``: what any host runs; failures of operators.
Must not know: threads. Enter at: ``graph``, ``compile``.
"""
