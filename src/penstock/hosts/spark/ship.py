"""Penstock on the workers of a cluster that do not have it.

It is sent as a zip that Python imports from. Numba cannot keep compiled kernels in a zip, so what is imported first
unpacks the rest, once on each machine, and the kernels that are compiled here go with it: a machine with the same
processor need not compile them.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import model
from penstock.hosts.spark.described import describing
from penstock.hosts.spark.internals import check_classic
from penstock.model.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = ("numpy", "pyarrow", "pandas", "numba", "sqlglot")
"""What workers import besides Penstock."""

Seen = tuple[str, tuple[str, ...], str]
"""The name of a machine, what its workers lack, and the digest of the Penstock they have."""


def ship(spark: SparkSession) -> bool:
    """Send Penstock to the workers of a cluster if some lack it or have another one; was it sent?

    What Penstock needs must be installed there.
    """
    check_classic(spark)
    context = spark.sparkContext
    if re.match(r"local(\[|$)", context.master or ""):
        return False
    look = looking(NEEDED)
    tasks = 2 * context.defaultParallelism
    with describing(context, "penstock: what the workers have"):
        seen: list[Seen] = sorted(set(context.parallelize(range(tasks), tasks).mapPartitions(look).collect()))
    check(seen)
    (_, _, mine), *_ = look(())
    if all(digest == mine for _, _, digest in seen):
        return False
    # The folder is the driver's as long as workers may ask for what is in it.
    context.addPyFile(str(packed(Path(tempfile.mkdtemp(prefix="penstock-")) / f"penstock-{mine[:12]}.zip", mine)))
    return True


def check(seen: Iterable[Seen]) -> None:
    """Refuse workers on which Penstock cannot run."""
    for host, lacks, _ in seen:
        if lacks:
            raise EngineError(
                f"the workers on {host} lack {', '.join(lacks)}",
                hint=f"install it there (pip install {' '.join(lacks)}), or send an environment with spark.archives",
            )


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


def packed(package: Path, digest: str) -> Path:
    """This Penstock as a zip that Python can import from."""
    home = Path(model.__file__).parents[1]
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("penstock/__init__.py", _FIRST.replace("DIGEST", digest))
        for path in sorted(p for kind in ("*.py", "*.nbi", "*.nbc") for p in home.rglob(kind)):
            entry = zipfile.ZipInfo(f"sent/{path.relative_to(home).as_posix()}")
            # Kernels are known by when their source was changed, to the nanosecond.
            entry.comment = str(path.stat().st_mtime_ns).encode()
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return package


_FIRST = '''\
"""Unpacks the Penstock that was sent with this, once on each machine, and goes on as that."""

import os
import tempfile
import zipfile


def _unpacked(archive):
    user = os.path.join(tempfile.gettempdir(), f"penstock-{os.getuid()}")
    os.makedirs(user, mode=0o700, exist_ok=True)
    facts = os.stat(user)
    if facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        user = tempfile.mkdtemp(prefix="penstock-")
    home = os.path.join(user, "DIGEST")
    if os.path.isdir(home):
        return home
    part = tempfile.mkdtemp(dir=user)
    with zipfile.ZipFile(archive) as sent:
        for entry in sent.infolist():
            if entry.filename.startswith("sent/"):
                path = os.path.join(part, *entry.filename.split("/")[1:])
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as out:
                    out.write(sent.read(entry))
                os.utime(path, ns=(int(entry.comment),) * 2)
    try:
        os.rename(part, home)
    except OSError:
        if not os.path.isdir(home):
            raise
    return home


__path__ = [_unpacked(__loader__.archive)]
__spec__.submodule_search_locations = __path__
__file__ = os.path.join(__path__[0], "__init__.py")
with open(__file__) as _source:
    exec(compile(_source.read(), __file__, "exec"))
'''
