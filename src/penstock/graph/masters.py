"""How queries with MASTER are run, by name.

``smart``, which is built in: windows and gates pass on what has changed when a master element arrives. Plug-in point:
``MASTERS`` maps a name to what makes an ``OtherWay`` of a plan, or to None for ``smart``. The naive scheme of 002, to
compare with, is in ``experiments``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from penstock.graph.operators import Emitting
from penstock.graph.ports import Port
from penstock.operators.emit import Emit
from penstock.plan.nodes import Node

SMART = "smart"


class OtherWay(Protocol):
    """The windows of ``node`` pass on every change, and there are no gates; what becomes of that at master instants is
    the matter of the operator that makes answers."""

    @property
    def node(self) -> Node:
        """The plan to run; its rows may have more columns than those of the query, and its leaves may bring operators
        (``operators.build.OwnLeaf``)."""

    @property
    def key(self) -> Hashable:
        """What tells operators apart that are equal but for this."""

    def emitting(
        self, label: str, emit: Emit, changes: Port, instants: Sequence[Port], *, masters: bool, streams: bool
    ) -> Emitting:
        """The operator that makes answers of the changes."""


MASTERS: dict[str, Callable[[Node], OtherWay] | None] = {SMART: None}
