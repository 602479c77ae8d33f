"""Which engines there are, and what each can be told when a database is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from penstock.hosts.results import BOUND
from penstock.model.amounts import Bound, parse_bytes
from penstock.model.errors import EngineError, InputError
from penstock.storage.store import Sync


@dataclass(frozen=True)
class Keeping:
    """Settings of a directory, whatever engine: ``sync``: what survives a loss of power, see ``storage.store``;
    ``functions``: the code of Python functions that it has may be run; ``quota``: how large it may become, such as
    ``"10 GB"`` (None: no limit). ``results``: what is kept for readers of a query that does not say it itself."""

    sync: Sync = "off"
    functions: bool = False
    quota: int | str | None = None
    results: Bound = BOUND

    @property
    def quota_bytes(self) -> int | None:
        """The quota in bytes."""
        return None if self.quota is None else parse_bytes("quota", self.quota)

    def __post_init__(self) -> None:
        _ = self.quota_bytes  # checks it


@dataclass(frozen=True)
class SparkOptions:
    """Settings of ``engine="spark"``.

    ``master``: as Spark names it. ``shards``: how many ways queries with a key are split; by default as many as
    Spark has cores. ``trigger``: seconds to collect rows before a micro-batch begins, or ``push``: every call returns
    when its answers are there. ``batch_rows``: at most so many rows in a micro-batch, if one push has not more.
    ``spark``: more settings for Spark. ``inline``: without Spark, in this process, to hand over to another engine.
    """

    master: str | None = None
    shards: int | None = None
    trigger: float | Literal["push"] | None = None
    batch_rows: int | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    inline: bool = False

    def check(self) -> None:
        """InputError if one of them cannot be."""
        if self.shards is not None and self.shards < 1:
            raise InputError(f"shards is {self.shards}", hint="at least one is needed")
        if self.batch_rows is not None and self.batch_rows < 1:
            raise InputError(f"batch_rows is {self.batch_rows}", hint="at least one is needed")
        trigger = self.trigger
        if not (trigger is None or trigger == "push" or (isinstance(trigger, int | float) and trigger >= 0)):
            raise InputError(f"trigger is {trigger!r}", hint="give seconds, or 'push'")

    def or_environment(self) -> SparkOptions:
        """With what ``PENSTOCK_MASTER`` and ``PENSTOCK_TRIGGER`` say where nothing else does."""
        said = os.environ.get("PENSTOCK_TRIGGER")
        try:
            trigger: float | Literal["push"] | None = "push" if said == "push" else float(said) if said else None
        except ValueError:
            raise InputError(f"PENSTOCK_TRIGGER is {said!r}", hint="give seconds, or 'push'") from None
        return replace(
            self,
            master=self.master or os.environ.get("PENSTOCK_MASTER") or None,
            trigger=trigger if self.trigger is None else self.trigger,
        )


@dataclass(frozen=True)
class LocalOptions:
    """Settings of ``engine="local"``: what may wait in buffers, see ``Settings``; and where the files are for what
    exceeds the memory, by default among the system's temporary files."""

    memory: int | str | None = "512 MB"
    disk: int | str | None = None
    when_full: str = "block"
    spill: str | Path | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.spill, str | Path | None):
            raise InputError(f"spill is {self.spill!r}", hint="it is a directory in which files can be made")


ENGINES = ("reference", "local", "spark")


def default_engine() -> str:
    """The engine where none is named: that of the environment variable ``PENSTOCK_ENGINE``, or Spark."""
    return os.environ.get("PENSTOCK_ENGINE") or "spark"


def check_engine(engine: str) -> None:
    """Refuse an engine that is not there."""
    if engine not in ENGINES:
        raise EngineError(f"no engine `{engine}`", hint="there is " + ", ".join(f"`{e}`" for e in ENGINES))
