"""Wind turbines and the houses that live from them: the scenario that ``penstock demo`` plays.

    scenario.py ──▶ run.py ──▶ snapshots ──▶ view.py (a terminal), plain.py (a pipe)
     rows             drives the database, measures
"""
