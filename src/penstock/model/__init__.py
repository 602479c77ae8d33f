"""What everything is about: types, values, rows, changes, batches, and what goes wrong with them.

Owns: the words that all other packages share. Must not know: anything else of Penstock.
Enter at: ``delta``, the central object and its laws; ``types``; ``errors``.
"""
