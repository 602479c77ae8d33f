"""One shard: opened from a store at a version, stepped with a feed, committed as a version.

There are two feeds. ``rows.RowShard`` takes rows from Spark, for ``ps.sql`` and ``ps.pipeline``; ``parts.slot.Slot``
takes segments by path, for ``connect()``.

A step starts from the version before it and nothing else, so it can be tried again, anywhere, as often as it takes. A
worker process remembers the shards that it has worked on, because loading costs. What it remembers counts only if it
is, by the number of the attempt that wrote it, the very state that is stored as the version, or one that this goes on
from: Spark gives the tasks of a shard to any worker, so most are a few versions behind. Then the shard takes in what
the versions in between have changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar

from penstock.hosts.spark.worker import unsettle
from penstock.model.errors import CheckpointError
from penstock.operators.state import LoadedState, State
from penstock.storage.versions import StateStore

_KEPT = 32
"""Shards that one process remembers: its memory is bounded by so many states, the last ones it worked on."""
Feed = TypeVar("Feed")
Gave = TypeVar("Gave")


class Shard(ABC, Generic[Feed, Gave]):
    """Programs with their state, as they are after a version."""

    store: StateStore
    missed: Literal["", "caught up", "loaded"]
    """Whether the process did not remember the version that was opened, but an earlier one, or none."""
    _key: tuple[str, str]
    _memory: Memory

    @classmethod
    def open(
        cls, store: StateStore, base: tuple[int, str] | None, feed: Feed, fresh: Callable[[], Self],
        missing: Callable[[int], CheckpointError], *, owner: str = "", memory: Memory | None = None,
    ) -> Self:  # fmt: skip
        """The shard after version and attempt ``base``; None: one that ``fresh`` makes. ``missing``: what to raise if
        the version is not there.

        ``owner`` tells shards apart whose states are equal and whose programs may not be. ``memory`` is that of this
        process, unless a test has several.
        """
        memory, key = _remembered if memory is None else memory, (owner, store.root)
        # Whatever happens in this step, what is remembered now is not the state after it.
        kept = memory.pop(key, None)
        if isinstance(kept, cls) and base is not None:
            kept.missed = "" if kept.store.version == base[0] else "caught up"
            if kept._goes_on_from(base, feed):
                return kept
        if kept is not None:
            unsettle()
        shard = fresh()
        shard.store, shard._key, shard._memory = store, key, memory
        shard.missed = "" if base is None else "loaded"
        if base is not None:
            state = store.load(*base)
            if state is None:
                raise missing(base[0])
            shard.take(state, feed, is_fresh=True)
        return shard

    def _goes_on_from(self, base: tuple[int, str], feed: Feed) -> bool:
        """Become the state of a version, if this is it or one that it goes on from."""
        if self.store.version == base[0]:
            return self.store.holds(*base)
        state = self.store.follow(*base)
        if state is not None:
            self.take(state, feed, is_fresh=False)
        return state is not None

    @abstractmethod
    def take(self, state: LoadedState, feed: Feed, *, is_fresh: bool) -> None:
        """Become what a shard of the same programs saved, as far as the feed is for it.

        One that is not fresh has done nothing since it saved, or took, a state that this one goes on from.
        """

    @abstractmethod
    def step(self, feed: Feed) -> Gave:
        """Work on what the feed has."""

    @abstractmethod
    def save(self) -> State:
        """All that a later step needs."""

    def commit(self, version: int) -> tuple[str, int]:
        """Store the state as a version, and remember it: the name of the attempt, and how many bytes were new."""
        before = self.store.written
        attempt = self.store.commit(version, self.save())
        self._memory[self._key] = self
        while len(self._memory) > _KEPT:
            self._memory.popitem(last=False)
            unsettle()
        return attempt, self.store.written - before


Memory: TypeAlias = OrderedDict[tuple[str, str], Shard[Any, Any]]
"""The shards that a process remembers, by owner and directory of the store; the last one it worked on is the last."""
_remembered: Memory = OrderedDict()


def forget_all() -> None:
    """Make this process one that has not worked on any shard."""
    _remembered.clear()
