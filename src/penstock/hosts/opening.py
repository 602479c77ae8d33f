"""From the name of an engine to its host."""

from __future__ import annotations

from pathlib import Path

from penstock.hosts.core import Core
from penstock.hosts.host import Host
from penstock.hosts.options import LocalOptions, SparkOptions, check_engine
from penstock.model.errors import EngineError, InputError


def host(engine: str, core: Core, path: Path | None, options: SparkOptions, local: LocalOptions) -> Host:
    """A new host for a database, on the engine of that name."""
    check_engine(engine)
    if engine != "local" and local != LocalOptions():
        raise EngineError(
            f"engine `{engine}` has no buffers in memory, no quota, and does not ask before it runs functions: memory, "
            "disk, when_full, spill, quota and functions belong to engine='local'",
            hint="on Spark, rows wait in the streams' logs on disk",
        )
    if engine == "spark":
        from penstock.hosts.spark.live.host import SparkHost

        return SparkHost(core, path, options.or_environment())
    if options != SparkOptions():
        raise EngineError(f"engine `{engine}` takes no settings", hint="they belong to engine='spark'")
    if path is None and (local.functions or local.sync != "off"):
        said = f"sync is {local.sync!r}" if local.sync != "off" else "functions is True"
        raise InputError(
            f"{said}, but there is no directory that it could be about",
            hint="name one, as in connect('directory', engine='local'), or leave it out",
        )
    if local.quota is not None and path is None:
        raise InputError(
            f"quota is {local.quota!r}, but there is no directory that it could bound",
            hint="name one, as in connect('directory', engine='local', quota='10 GB'); `memory` bounds buffers",
        )
    if engine == "local":
        from penstock.hosts.local.host import LocalHost

        return LocalHost(core, local, path)
    if path is not None:
        raise EngineError(
            f"engine `{engine}` keeps nothing on disk",
            hint="use engine='local' or 'spark', or leave the directory out",
        )
    from penstock.hosts.reference import ReferenceHost

    return ReferenceHost(core)
