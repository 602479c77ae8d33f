"""Operators: small stateful objects over deltas, called directly, knowing nothing of threads, queues or hosts."""
