"""Other systems: where their Python is, if ``make peers`` has installed them, and the script that has their jobs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.places import ROOT

FOLDER = "PENSTOCK_PEERS"
"""In the environment: the folder with a virtual environment for each system; by default `.peers` of the clone."""


@dataclass(frozen=True)
class Peer:
    """A system with the name of its package, of its environment and of its script."""

    system: str
    package: str

    @property
    def python(self) -> Path:
        return folder() / self.package / "bin" / "python"

    @property
    def script(self) -> Path:
        return ROOT / "benchmarks" / "peers" / f"{self.package.replace('-', '_')}_job.py"


PEERS = (
    Peer("PyFlink", "apache-flink"),
    Peer("Pathway", "pathway"),
    Peer("bytewax", "bytewax"),
    Peer("streamz", "streamz"),
)


def folder() -> Path:
    """Where the environments are."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else ROOT / ".peers"


def installed() -> list[Peer]:
    """Those that can take part."""
    return [peer for peer in PEERS if peer.python.exists()]
