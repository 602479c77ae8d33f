"""``penstock.connect``: a database here, in a directory or in memory, or that of a server.

Owns: the choice between them. Must not know: how either works. Enter at: ``connect``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, cast

from penstock.database.database import Database, wall_clock
from penstock.hosts.options import Keeping, LocalOptions, SparkOptions
from penstock.model.errors import EngineError
from penstock.storage.store import checked_sync


def connect(
    path: str | Path | None = None,
    *,
    engine: str | None = None,
    master: str | None = None,
    shards: int | None = None,
    trigger: float | Literal["push"] | None = None,
    batch_rows: int | None = None,
    sync: bool | str = False,
    functions: bool = False,
    quota: int | str | None = None,
    spark: Mapping[str, str] | None = None,
    memory: int | str | None = "512 MB",
    disk: int | str | None = None,
    when_full: str = "block",
    spill: str | Path | None = None,
    clock: Callable[[], int] = wall_clock,
    zone: str | None = None,
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    ca: str | None = None,
    patience: float = 30.0,
) -> Database:
    """A database. With a directory it is kept there, and goes on from there when it is opened again. With the address
    of a server, such as ``http://127.0.0.1:7070``, it is the one that the server has.

    ``engine``: ``spark`` (the default), ``local`` or ``reference``. Of ``spark`` alone: ``master`` is Spark's, by
    default ``local[*]``; ``shards``: how many ways queries with a key are split; ``trigger``: seconds in which
    rows are collected before a micro-batch begins (by default it begins at once), or ``push``: calls return when their
    answers are there; ``batch_rows``: at most so many rows in a micro-batch; ``spark``: more settings for Spark.

    With a directory, ``sync`` says what survives a loss of power. ``off`` (False): the last saved state, and of what
    came later as much as has reached the disk. ``group`` (True): everything acknowledged; threads that push at the same
    time share one sync. ``always``: the same, each push for itself. ``functions``: the code of Python functions that
    the directory has may be run; ``quota``: how large the directory may become, such as ``10 GB`` (None: no limit);
    what would go over is refused. See docs/concepts/storage.md.

    Of ``local`` alone: ``memory``: how much of what waits in buffers may be in memory, and ``disk``: how much of
    it on disk (None: no limit); ``when_full``: ``block`` or ``raise``; ``spill``: where the files for that are made.

    ``clock`` gives the time in microseconds, for streams stamped on
    arrival. ``zone``: the time zone of functions such as ``hour``, of times in CQL that name no other, and in which
    answers are shown, such as ``Europe/Vienna``; by default that of the directory, or of the running Spark session, or
    UTC.

    Of a server alone, and nothing else with one: ``token``, or ``user`` and ``password``: who asks; ``ca``: the file
    with the certificate that is trusted; ``patience``: seconds for which a server that does not answer is tried again.
    """
    if isinstance(path, str) and path.startswith(("http://", "https://")):
        from penstock.client.database import RemoteDatabase  # few programs need it

        if (engine, master, shards, trigger, batch_rows, quota, spark, disk, spill, zone) != (None,) * 10 or functions:
            hint = "`penstock serve` takes these options"
            raise EngineError("how a server works is said where it is started", hint=hint)
        remote = RemoteDatabase(path, token=token, user=user, password=password, ca=ca, patience=patience)
        return cast(Database, remote)  # the same interface
    way = checked_sync(sync if isinstance(sync, str) else "group" if sync else "off")
    options = SparkOptions(master, shards, trigger, batch_rows, spark or {})
    local, keeping = LocalOptions(memory, disk, when_full, spill), Keeping(way, functions, quota)
    return Database(engine, path=path, clock=clock, options=options, local=local, keeping=keeping, zone=zone)
