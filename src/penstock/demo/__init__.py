"""Wind turbines and the houses that live from them: the scenario that ``penstock demo`` plays.

    scenario.py ──▶ run.py ──▶ snapshots ──▶ view.py (a terminal), plain.py (a pipe)
     rows             drives the database, measures

Owns: the scenario that ``penstock demo`` plays.
Must not know: how queries are run. Enter at: ``run``.
"""
