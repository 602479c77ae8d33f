"""Saving a graph with all that its queries remember, and going on from there in another process.

What operators remember is saved by the number of their vertex, as pieces; all else that makes a difference to what the
graph does next is JSON under the path ``graph``: which vertices there are and who feeds whom, how far each is, who uses
it, and which of them have become or may become the same.

Operators themselves are not saved: ``restore`` compiles every query again, and each vertex that the compiler asks for
is the saved one that this query used, that does the same and has the same inputs. Of one query there is never more
than one of these.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.graph.compile import Compiler, Functions
from penstock.graph.graph import Graph, Member
from penstock.graph.message import mark_of
from penstock.graph.operators import Windowed
from penstock.graph.sink import Sink
from penstock.graph.sources import Source
from penstock.graph.vertices import OperatorVertex
from penstock.model import errors
from penstock.model.errors import CheckpointError, PenstockError
from penstock.operators.state import Json, Loaded, LoadedState, Meta, Saved, State, below, under
from penstock.operators.tables import from_number, number
from penstock.plan.nodes import Query

_PATH = "graph"
_HINT = "restore with the plans that the queries were compiled from, and the release of Penstock that saved it"


def save(graph: Graph) -> State:
    """The state of a graph in which nothing is under way: no rows wait for a ``flush`` or in buffers, and all answers
    have been taken. Costs what is new since the last save, and a little for every vertex.

    What a vertex remembers that does not work any more is not saved.
    """
    state: State = {}
    for vertex in graph.vertices.values():
        if vertex.state != "stopped":
            state |= under(f"{vertex.id}", vertex.save())
    state[_PATH] = Saved(
        {
            "next": graph.next,
            "versions": dict(graph.versions),
            "ahead": dict(graph.ahead),
            "vertices": [_facts(graph, vertex) for vertex in graph.vertices.values()],
            "members": {name: _member(member) for name, member in graph.members.items()},
            "twins": [[a.id, b.id] for a, b in graph.twins.pairs if {a.id, b.id} <= graph.vertices.keys()],
            "since": [[id, *at] for id, at in graph.twins.since.items() if id in graph.vertices],
        }
    )
    return state


def restore(graph: Graph, state: LoadedState, queries: Mapping[str, tuple[Query, Functions]]) -> None:
    """Make an empty graph what another one was when it was saved; it is wired.

    ``queries``: for each query of the saved graph the plan that it was compiled from, and its functions, which are
    those of then: see ``identity.Named``.
    """
    assert not graph.vertices, "a graph is restored before queries come"
    facts = state[_PATH].meta
    saved = {fact["id"]: fact for fact in facts["vertices"]}
    made: dict[int, OperatorVertex] = {}
    for name, member in facts["members"].items():
        if name not in queries:
            raise CheckpointError(f"the saved graph has a query `{name}`, of which there is no plan", hint=_HINT)
        _compile(graph, name, *queries[name], member, saved, made)
    for id, fact in saved.items():
        graph.attach(made[id], [made[i] for i in fact["inputs"]])
    parts: dict[str, LoadedState] = {}
    for path, loaded in state.items():
        id, _, rest = path.partition("/")
        parts[id] = {**parts.get(id, {}), rest: loaded}
    with _no_collecting():
        for id, fact in saved.items():
            if fact["state"] != "stopped":
                made[id].load(parts.get(f"{id}", {}))
    for id, fact in saved.items():
        _become(graph, made[id], fact)
    for name, member in facts["members"].items():
        _join(graph, name, member, made)
    for vertex in made.values():
        graph.prioritise(vertex)
    graph.next = facts["next"]
    graph.versions.update(facts["versions"])
    graph.ahead.update(facts["ahead"])
    graph.twins.pairs = [(made[a], made[b]) for a, b in facts["twins"]]
    graph.twins.since = {id: (ts, sub) for id, ts, sub in facts["since"]}
    graph.wire()


def catch_up(graph: Graph, state: LoadedState) -> None:
    """Be what a later state says that goes on from the one which this graph saved, or was restored from, last; the
    queries are the same, and nothing has been done since. Costs what has changed, and a little for every vertex."""
    for fact in state[_PATH].meta["vertices"]:
        vertex = graph.vertices[fact["id"]]
        if fact["state"] != "stopped":
            vertex.catch_up(below(f"{vertex.id}", state))
        _become(graph, vertex, fact)
    graph.versions.update(state[_PATH].meta["versions"])
    graph.ahead.update(state[_PATH].meta["ahead"])


def only(state: LoadedState, names: Mapping[str, str]) -> LoadedState:
    """The state of a graph with some of its queries, under other names."""
    facts = state[_PATH].meta
    members = {names[name]: member for name, member in facts["members"].items() if name in names}
    kept = {id for member in members.values() for id in member["vertices"]}
    vertices = [
        {**fact, "outputs": [edge for edge in fact["outputs"] if edge[0] in kept]}
        for fact in facts["vertices"] if fact["id"] in kept
    ]  # fmt: skip
    found = {
        **facts, "members": members, "vertices": vertices,
        "twins": [pair for pair in facts["twins"] if kept.issuperset(pair)],
        "since": [since for since in facts["since"] if since[0] in kept],
    }  # fmt: skip
    inside = {f"{id}" for id in kept}
    return {
        **{path: loaded for path, loaded in state.items() if path.partition("/")[0] in inside},
        _PATH: Loaded(found, state[_PATH].tables),
    }


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Without the garbage collector: of millions of objects that are made, and all stay, it finds none to free, and
    looking at them again and again takes longer than making them."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def digest(what: Hashable) -> str:
    """A name of what a vertex does, the same in all processes."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:20]


# -- vertices ---------------------------------------------------------------------------------------


def _facts(graph: Graph, vertex: OperatorVertex) -> dict[str, Json]:
    """All of a vertex but what its operator remembers; what is as in a new one is left out."""
    if isinstance(vertex.key, tuple) and not vertex.digest:
        vertex.digest = digest(vertex.key[0])
    facts: dict[str, Json] = {
        "id": vertex.id,
        "what": vertex.digest,
        "label": vertex.label,
        "inputs": [e.source.id for e in vertex.inputs],
        "outputs": [[e.target.id, e.port, *(e.since or ())] for e in vertex.outputs],
        "found": graph.is_kept(vertex),
        "state": "stopped" if vertex.state == "stopped" else "ready",
        "touched": vertex.touched,
        "start": dict(vertex.start),
        "mark": [*vertex.mark.plain()],
        "sent": [*vertex.sent.plain()],
        "stats": [*vertex.stats.save()],
    }
    if vertex.errors is not None and vertex.errors.failures:
        facts["failures"] = [vertex.errors.failures, vertex.errors.last_failure]
    match vertex:
        case Source():
            facts["given"] = vertex.given
        case Windowed():
            facts["born"] = number(vertex.born)
        case Sink():
            assert not vertex.answers, "answers are taken before a graph is saved"
            facts["error"] = None if vertex.error is None else error_json(vertex.error)
    return facts


def _become(graph: Graph, vertex: OperatorVertex, facts: Meta) -> None:
    """Be as it was when the facts were written; the operator is."""
    vertex.digest, vertex.label, vertex.state = facts["what"], facts["label"], facts["state"]
    vertex.touched, vertex.start = facts["touched"], facts["start"]
    vertex.mark, vertex.sent = mark_of(facts["mark"]), mark_of(facts["sent"])
    vertex.stats.load(facts["stats"])
    edges = {(e.target.id, e.port): e for e in vertex.outputs}
    vertex.outputs[:] = [edges[target, port] for target, port, *_ in facts["outputs"]]
    for edge, (_, _, *since) in zip(vertex.outputs, facts["outputs"], strict=True):
        edge.since = (since[0], since[1]) if since else None
    if facts["found"]:
        graph.keep(vertex)
    if vertex.errors is not None:
        # Operators have computed keys of their rows again; what failed had been counted.
        vertex.errors.failures, vertex.errors.last_failure = facts.get("failures", (0, None))
    match vertex:
        case Source():
            vertex.given = facts["given"]
        case Windowed():
            vertex.born = from_number(facts["born"])
        case Sink():
            vertex.error = None if facts["error"] is None else error_of(facts["error"])


# -- queries ----------------------------------------------------------------------------------------


def _member(member: Member) -> dict[str, Json]:
    return {
        "vertices": [v.id for v in member.vertices],
        "before": [[id, count] for id, count in member.before.items()],
        "priority": member.sink.priority,
        "strict": member.strict,
        "masters": member.masters,
    }


def _join(graph: Graph, name: str, member: Meta, made: Mapping[int, OperatorVertex]) -> None:
    vertices = tuple(made[id] for id in member["vertices"])
    sink = next(v for v in vertices if isinstance(v, Sink))
    sink.priority = member["priority"]
    before = dict(member["before"])
    graph.members[name] = Member(sink, vertices, before, member["strict"], member["masters"])
    for vertex in vertices:
        vertex.users.add(name)


def _compile(
    graph: Graph,
    name: str,
    plan: Query,
    functions: Functions,
    member: Meta,
    saved: Mapping[int, Meta],
    made: dict[int, OperatorVertex],
) -> None:
    """Make the vertices of a query that no other has made."""
    used = [saved[id] for id in member["vertices"]]
    found = _Used(name, used, made)
    compiler = Compiler(found, functions, member["strict"], mirrors=graph.mirrors, masters=member["masters"])
    answers = compiler.answers(plan)
    sink = Sink(name, plan.schema, graph.told, ordered=plan.ordered)
    (sink.id,) = {*member["vertices"]} - {*compiler.used}
    assert saved[sink.id]["inputs"] == [answers.id], "who feeds a query is known by all that is below"
    made[sink.id] = sink


class _Used:
    """The vertices that a query used, for its compiler."""

    def __init__(self, name: str, used: Sequence[Meta], made: dict[int, OperatorVertex]) -> None:
        self._name, self._made = name, made
        self._ids = {(fact["what"], tuple(fact["inputs"])): fact["id"] for fact in used}
        assert len(self._ids) == len(used), "of one query no two vertices do the same to the same"

    def _id(self, key: Hashable) -> int | None:
        assert isinstance(key, tuple)
        what, inputs = key
        return self._ids.get((digest(what), inputs))

    def find(self, key: Hashable) -> OperatorVertex | None:
        id = self._id(key)
        return None if id is None else self._made.get(id)

    def lacks(self, key: Hashable) -> bool:
        return self._id(key) is not None

    def put(self, vertex: OperatorVertex, key: Hashable, inputs: Sequence[OperatorVertex]) -> None:
        id = self._id(key)
        if id is None:
            raise CheckpointError(
                f"the saved graph has no {vertex.kind} `{vertex.label}` for query `{self._name}`", hint=_HINT
            )
        vertex.id, vertex.key = id, key
        self._made[id] = vertex


# -- failures ---------------------------------------------------------------------------------------


def error_json(error: Exception) -> dict[str, Json]:
    """What is told of a failure."""
    told: dict[str, Json] = {"type": type(error).__name__, "notes": [*getattr(error, "__notes__", ())]}
    if isinstance(error, PenstockError):
        return {**told, "message": error.message, "hint": error.hint}
    return {**told, "text": str(error)}


def error_of(saved: Mapping[str, Any]) -> Exception:
    """An error that tells the same."""
    name = saved["type"]
    if "message" in saved:
        error: Exception = getattr(errors, name, PenstockError)(saved["message"], hint=saved["hint"])
    else:
        error = type(name, (Exception,), {})(saved["text"])
    for note in saved["notes"]:
        error.add_note(note)
    return error
