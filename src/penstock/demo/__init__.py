"""A small house and its energy: the scenario that ``penstock demo`` plays."""
