"""Engines: what runs the queries of a database.

Owns: ``Host``, what every engine is, and the three there are. Must not know: statements; of a database only ``Core``.
Enter at: ``host``; ``local/host``, ``spark/parts/host``, ``reference``.
"""
