"""Endpoints by method and path. A name in a path may hold anything, ``%2F`` too: parts are told apart before they are
decoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.responses import Response

    from penstock.server.http.app import Call


@dataclass(frozen=True, eq=False)
class Endpoint:
    """What one method does at one path, and what the OpenAPI document says of it."""

    method: str
    path: str
    """With ``{name}`` for what the client puts there."""
    run: Callable[[Call], Awaitable[Response | None]]
    id: str
    summary: str
    responses: Mapping[int, Any]
    """Of a good end, and of errors that the client may want to tell apart; others are in all entries."""
    parameters: Sequence[Mapping[str, Any]] = ()
    body: Mapping[str, Any] | None = None
    open: bool = False
    """Whether it answers without a credential."""
    description: str = ""


@dataclass(frozen=True)
class Found:
    """The endpoints of a path, by method, and the parts that stand for names, not decoded."""

    methods: Mapping[str, Endpoint]
    names: Mapping[str, str]
    open: bool


@dataclass
class _Node:
    below: dict[str, _Node] = field(default_factory=dict)
    name: str | None = None
    """What a part is called that is not in ``below``."""
    any: _Node | None = None
    methods: dict[str, Endpoint] = field(default_factory=dict)


class Router:
    """Finds endpoints, in as many steps as a path has parts."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._root = _Node()
        for endpoint in endpoints:
            node = self._root
            for part in _parts(endpoint.path):
                if part.startswith("{"):
                    node.name, node.any = part[1:-1], node.any or _Node()
                    node = node.any
                else:
                    node = node.below.setdefault(part, _Node())
            node.methods[endpoint.method] = endpoint

    def find(self, path: str) -> Found | None:
        """What is at a path; None: nothing."""
        node, names = self._root, dict[str, str]()
        for part in _parts(path):
            if part in node.below:
                node = node.below[part]
            elif node.any is not None and node.name is not None and part:
                names[node.name], node = part, node.any
            else:
                return None
        if not node.methods:
            return None
        return Found(node.methods, names, all(each.open for each in node.methods.values()))


def _parts(path: str) -> list[str]:
    return path.split("/")[1:]
