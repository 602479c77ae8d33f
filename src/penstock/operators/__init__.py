"""Operators: small stateful objects over deltas, called directly, knowing nothing of threads, queues or hosts.

Owns: one relational operation each, incrementally; a contract on top of each file.
Must not know: threads, buffers, hosts. Enter at: ``base``, ``build``.
"""
