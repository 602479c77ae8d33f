"""What tasks have written and nobody needs: it is removed where there may be no room for it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.hosts.spark.parts.slot import store_of
from penstock.hosts.spark.parts.task import Report, Trouble
from penstock.model.errors import CheckpointError

if TYPE_CHECKING:
    from penstock.hosts.spark.parts.host import SparkHost


def discard(host: SparkHost, part: int, reports: Sequence[Report | Trouble]) -> None:
    """A micro-batch is made again: remove what tasks have written for it."""
    for report in (r for r in reports if isinstance(r, Report)):
        with contextlib.suppress(OSError, CheckpointError):
            store_of(str(host.root), part, report.slot, host.slots).discard(report.version, report.attempt)
            for given in (outcome.given for outcome in report.outcomes.values()):
                if given is not None and given.file:
                    host.files.remove(given.file)


def forget_states(host: SparkHost) -> None:
    """Remove states of slots that are older than all that is needed, as tasks do with every eighth micro-batch."""
    for part in host.parts:
        for slot in part.bases:
            with contextlib.suppress(OSError, CheckpointError):
                store_of(str(host.root), part.id, slot, host.slots).forget(host.oldest_of(part.id))
