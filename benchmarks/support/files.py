"""Data of benchmarks, as files."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write(folder: Path, table: pa.Table, files: int) -> Path:
    """A table as files of equal size, which Spark takes in this order."""
    folder.mkdir(parents=True)
    size = -(-len(table) // files)
    for i in range(files):
        path = folder / f"{i:05d}.parquet"
        pq.write_table(table.slice(i * size, size), path)
        os.utime(path, (1_700_000_000 + 10 * i,) * 2)
    return folder
