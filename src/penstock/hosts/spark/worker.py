"""What a worker process keeps of the functions that it was sent."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Any

from pyspark import cloudpickle

_KEPT = 32
"""Functions that one process keeps."""
_kept: OrderedDict[str, Any] = OrderedDict()


class Sent:
    """A function that goes to workers with every task, and is built only once in each process.

    Spark pickles it once and sends the bytes along with each task; plans, schemas and kernels are many small objects.
    What is sent must not change: it is known by a number from then on.
    """

    @cached_property
    def _sent(self) -> tuple[str, bytes]:
        state = {k: v for k, v in self.__dict__.items() if k != "_sent"}
        content: bytes = cloudpickle.dumps((type(self), state))  # type: ignore[no-untyped-call]
        return uuid.uuid4().hex, content

    def __reduce__(self) -> tuple[Callable[[str, bytes], Any], tuple[str, bytes]]:
        return received, self._sent


def received(number: str, content: bytes) -> Any:
    """The function of this number, as it was made when it was first received here."""
    found = _kept.get(number)
    if found is None:
        kind, state = cloudpickle.loads(content)
        found = object.__new__(kind)
        found.__dict__.update(state)
        _kept[number] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    else:
        _kept.move_to_end(number)
    return found
