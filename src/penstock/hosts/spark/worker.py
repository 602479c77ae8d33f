"""What a worker process keeps of the functions that it was sent, where it has memory from, and what its collector of
garbage looks at.

Spark collects garbage in a Python worker after every task. With our kernels loaded that takes 100 ms, most of a small
micro-batch, to find nothing. So what is there after the first task is set aside; as soon as a shard is thrown away, all
is looked at again.

Arrow's own choice of an allocator, mimalloc, keeps large pages: then the system has to look for pages for the files
that a task writes, and 64 MB of answers took 0.2 seconds instead of 0.07. jemalloc, if Arrow has it, gives them back.
"""

from __future__ import annotations

import gc
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar

import numba
import pyarrow as pa
from pyspark import cloudpickle

from penstock.model.errors import EngineError
from penstock.model.version import VERSION

RELEASE = f"Penstock {VERSION} with numba {numba.__version__}"
"""What must be the same in the driver and in its workers: what they send and store, and the kernels that go along."""

_KEPT = 32
"""Functions that one process keeps."""
_kept: OrderedDict[str, Any] = OrderedDict()
_settled = False


def check_release(release: str) -> None:
    """Refuse what was sent by a driver of another release: state that another one wrote would not be trusted."""
    if release != RELEASE:
        raise EngineError(
            f"a worker has {RELEASE}, and the driver {release}", hint="install the same on all machines"
        )


def prepare(threads: int = 1) -> None:
    """At the beginning of a task: choose where memory is from. Arrow reads with at least ``threads`` threads:
    where users say nothing, Spark lets a worker have one."""
    with suppress(NotImplementedError):
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    if pa.cpu_count() < threads:
        pa.set_cpu_count(threads)


def settle() -> None:
    """At the end of a task: the collector passes over what is there now, unless it does already."""
    global _settled
    if not _settled:
        gc.collect()
        gc.freeze()
        _settled = True


def unsettle() -> None:
    """Something large is thrown away: let the collector look at everything again."""
    global _settled
    gc.unfreeze()
    _settled = False


class Sent:
    """A function that goes to workers with every task, and is built only once in each process.

    Spark pickles it once and sends the bytes along with each task; plans, schemas and kernels are many small objects.
    What is sent must not change: it is known by a number from then on. Attributes in ``_each_time`` are sent as such:
    an accumulator is one of its task.
    """

    _each_time: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def _sent(self) -> tuple[str, bytes]:
        state = {k: v for k, v in self.__dict__.items() if k != "_sent" and k not in self._each_time}
        content: bytes = cloudpickle.dumps((type(self), state))  # type: ignore[no-untyped-call]
        return uuid.uuid4().hex, content

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return received, (RELEASE, *self._sent, {name: self.__dict__[name] for name in self._each_time})


def received(release: str, number: str, content: bytes, each_time: Mapping[str, object]) -> Any:
    """The function of this number, as it was made when it was first received here."""
    global _settled
    check_release(release)
    found = _kept.get(number)
    if found is None:
        _settled = False
        kind, state = cloudpickle.loads(content)
        found = object.__new__(kind)
        found.__dict__.update(state)
        _kept[number] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    else:
        _kept.move_to_end(number)
    found.__dict__.update(each_time)
    return found
