"""From the name of an engine to its host."""

from __future__ import annotations

from dataclasses import fields

from penstock.hosts.core import Core
from penstock.hosts.host import Host
from penstock.hosts.options import Keeping, LocalOptions, SparkOptions, check_engine
from penstock.model.errors import EngineError, InputError
from penstock.storage.objects import Root


def host(
    engine: str, core: Core, path: Root | None, options: SparkOptions, local: LocalOptions, keeping: Keeping
) -> Host:
    """A new host for a database, on the engine of that name."""
    check_engine(engine)
    if engine != "local" and local != LocalOptions():
        raise EngineError(
            f"engine `{engine}` has no buffers in memory: memory, disk, when_full and spill belong to engine='local'",
            hint="on Spark, rows wait in the streams' logs on disk",
        )
    if path is None and (keeping.functions or keeping.sync != "off"):
        said = f"sync is {keeping.sync!r}" if keeping.sync != "off" else "functions is True"
        raise InputError(
            f"{said}, but there is no directory that it could be about",
            hint=f"name one, as in connect('directory', engine='{engine}'), or leave it out",
        )
    if keeping.quota is not None and path is None:
        raise InputError(
            f"quota is {keeping.quota!r}, but there is no directory that it could bound",
            hint=f"name one, as in connect('directory', engine='{engine}', quota='10 GB')"
            + ("; `memory` bounds buffers" if engine == "local" else ""),
        )
    if engine == "spark":
        from penstock.hosts.spark.parts.host import SparkHost

        return SparkHost(core, path, options.or_environment(), keeping)
    given = [f.name for f in fields(options) if getattr(options, f.name) != getattr(SparkOptions(), f.name)]
    if given:
        said = ", ".join(f"`{name}`" for name in given)
        raise EngineError(f"engine `{engine}` takes no settings of Spark: {said}", hint="they belong to engine='spark'")
    if engine == "local":
        from penstock.hosts.local.host import LocalHost

        return LocalHost(core, local, path, keeping)
    if path is not None:
        raise EngineError(
            f"engine `{engine}` keeps nothing on disk",
            hint="use engine='local' or 'spark', or leave the directory out",
        )
    from penstock.hosts.reference import ReferenceHost

    return ReferenceHost(core)
