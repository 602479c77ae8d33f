"""Penstock on the workers of a cluster that do not have it."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = ("numpy", "pyarrow", "pandas", "numba", "sqlglot")
"""What workers import besides Penstock."""

Seen = tuple[str, tuple[str, ...], str]
"""The name of a machine, what its workers lack, and the digest of the Penstock they have."""


def ship(spark: SparkSession) -> bool:
    """Send Penstock to the workers of a cluster if some lack it or have another one; was it sent?

    What Penstock needs must be installed there. Kernels that are sent are compiled by each machine once for each
    application, which takes some 20 seconds; where that is too long, install Penstock on the workers.
    """
    context = spark.sparkContext
    if re.match(r"local(\[|$)", context.master or ""):
        return False
    look = looking(NEEDED)
    tasks = 2 * context.defaultParallelism
    seen: list[Seen] = sorted(set(context.parallelize(range(tasks), tasks).mapPartitions(look).collect()))
    for host, lacks, _ in seen:
        if lacks:
            raise EngineError(
                f"the workers on {host} lack {', '.join(lacks)}",
                hint=f"install it there (pip install {' '.join(lacks)}), or send an environment with spark.archives",
            )
    (_, _, mine), *_ = look(())
    if all(digest == mine for _, _, digest in seen):
        return False
    # The folder is the driver's as long as workers may ask for what is in it.
    context.addPyFile(str(packed(Path(tempfile.mkdtemp(prefix="penstock-")) / f"penstock-{mine[:12]}.zip")))
    return True


def packed(package: Path) -> Path:
    """The sources of this Penstock as a zip that Python can import from."""
    home = Path(penstock.__file__).parent
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(home.rglob("*.py")):
            archive.write(path, Path("penstock") / path.relative_to(home))
    return package


def looking(needed: tuple[str, ...]) -> Callable[[Iterable[object]], Iterator[Seen]]:
    """A function that looks what a worker has. It is sent as it stands: there may be no Penstock to import it from."""

    def look(_: Iterable[object]) -> Iterator[Seen]:
        import hashlib
        import importlib.util
        import pathlib
        import socket

        lacks = tuple(name for name in needed if importlib.util.find_spec(name) is None)
        spec = importlib.util.find_spec("penstock")
        digest = hashlib.sha256()
        for home in spec.submodule_search_locations or () if spec is not None else ():
            for path in sorted(pathlib.Path(home).rglob("*.py")):
                digest.update(path.relative_to(home).as_posix().encode() + b"\0" + path.read_bytes())
        yield socket.gethostname(), lacks, digest.hexdigest()

    return look
