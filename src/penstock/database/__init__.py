"""A database as its users hold it: streams, relations, queries, statements.

Owns: the lock, and putting the other packages together. Must not know: how a query is evaluated.
Enter at: ``database``.
"""
