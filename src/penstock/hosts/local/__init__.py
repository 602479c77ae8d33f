"""The local host: all queries of a database as one graph in this process; and queries by themselves, for Spark."""
