"""Which engine has written a directory, without opening it."""

from __future__ import annotations

from penstock.storage.objects import Root, files_at
from penstock.storage.reading import Reading
from penstock.storage.shards import PARTS
from penstock.storage.store import HEAD


def written_by(path: Root) -> str | None:
    """The engine that a directory was written by last; None if there is nothing that one of them would not read."""
    if HEAD not in files_at(path).names(""):
        return None
    reading = Reading(path)
    opened = reading.opened()
    states = reading.states(opened)
    if states.versions:
        state = states.load(states.versions[-1])
        return "spark" if f"graph/{PARTS}" in state else "local"
    found = None
    for _, record in reading.records(opened).read():
        if record["kind"] == PARTS:
            return "spark"
        found = "local"
    return found
