"""The same jobs on Penstock, on plain Spark, and on other systems that are installed: ``penstock bench compare``."""
