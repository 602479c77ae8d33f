"""Files in and out: CSV, JSON lines, Parquet and Arrow."""
