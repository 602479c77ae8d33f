"""Every endpoint, with its entry in the OpenAPI document."""

from __future__ import annotations

from starlette.responses import Response

from penstock.server.http import answers, queries, sql, streams, system
from penstock.server.http.app import Call
from penstock.server.http.openapi import (
    FLAG,
    POSITION,
    TEXT,
    array,
    content,
    everything,
    parameter,
    ref,
    struct,
    written,
)
from penstock.server.http.routing import Endpoint
from penstock.server.http.shapes import ARROW, CSV, EVENTS, JSON, NDJSON

_TABLE = content(ref("Table"), CSV, ARROW)
_FORMAT = parameter("format", {"enum": ["json", "csv", "arrow"]}, "Instead of `Accept`")
_STREAM = content(ref("Stream"))
_RELATION = content(ref("Relation"))
_QUERY = content(ref("Query"))
_SUBSCRIPTION = content(ref("Subscription"))
_ROWS = content(ref("Rows")) | {kind: {"schema": TEXT} for kind in (NDJSON, CSV)} | {ARROW: {"schema": {}}}
_KEY = parameter(
    "Idempotency-Key", {**TEXT, "pattern": "^[!-~]{1,100}:[0-9]{1,18}$"},
    "`producer:sequence`. Rows whose key was taken already are acknowledged and not taken again.", "header",
)  # fmt: skip
_FROM = parameter(
    "from", {"anyOf": [{"enum": ["start", "now"]}, POSITION]},
    "A position, `start` (the oldest retained result) or `now`. By default events begin now, pages at the start.",
)  # fmt: skip
_ANSWERS = (
    _FROM,
    parameter("limit", {"type": "integer", "minimum": 1, "maximum": answers.LARGEST}, "Results of a page at most"),
    parameter("wait", {"type": "integer", "minimum": 0, "maximum": answers.LONGEST_WAIT},
              "Seconds that a page waits for its first result"),
    parameter("format", {"enum": ["events", "json", "csv", "arrow"]}, "Instead of `Accept`"),
    parameter("Last-Event-ID", {**TEXT, "pattern": "^[0-9]{1,18}$"},
              "The `id` of the last event that the client had: events go on there", "header"),
)  # fmt: skip
_PAGE = {
    200: ("Events, or a page", content(ref("Page"), EVENTS, CSV, ARROW)),
    204: "There are no more events, and will be none: the query has ended",
}
_EVENTS = (
    "Server-sent events by default: one for each change, whose `id` is the position of the next result. An event"
    " `end` says that no more will come, an event `problem` why the server goes on no more. With `limit` or `wait`,"
    " or `Accept: application/json`, a page."
)
_EXPLAIN = {200: ("The plan", {"text/plain": {"schema": TEXT}, JSON: {"schema": {}}})}
_LIST = "What the user may read"


async def _openapi(call: Call) -> Response:
    call.known()
    return Response(written(ENDPOINTS), 200, None, JSON)


_PAGES = tuple(
    Endpoint("GET", path, run, id, summary, {200: (summary, {kind: {"schema": TEXT}})}, open=True)
    for path, run, id, summary, kind in (
        ("/", system.index, "index", "The page for people", "text/html"),
        ("/index.js", system.index_script, "indexScript", "Its script", "text/javascript"),
        ("/penstock.css", system.style, "style", "Its style", "text/css"),
        ("/reference", system.reference, "reference", "This document for people", "text/html"),
        ("/reference.js", system.reference_script, "referenceScript", "Its script", "text/javascript"),
    )
)

_SERVER = (
    Endpoint("GET", "/health", system.health, "health", "Whether the server answers",
             {200: ("It does", content(ref("Health")))}, open=True),
    Endpoint("GET", "/ready", system.ready, "ready", "Whether the server takes requests",
             {200: ("It does", content(ref("Ready"))), 503: ("It does not", content(ref("Ready")))}, open=True),
    Endpoint("GET", "/metrics", system.prometheus, "prometheus", "Figures for Prometheus",
             {200: ("What the user may see", {"text/plain": {"schema": TEXT}})}),
    Endpoint("GET", "/api/openapi.json", _openapi, "openapi", "This document",
             {200: ("It", content({"type": "object"}))}),
    Endpoint("GET", "/api/me", system.whoami, "me", "Who the credential belongs to",
             {200: ("A user", content(ref("User")))}),
    Endpoint("DELETE", "/api/me", system.log_out, "logOut", "End the session; the credential stays valid",
             {204: "Done"}),
    Endpoint("GET", "/api/graph", system.graph, "graph", "The operators of all queries",
             {200: ("The graph", {JSON: {"schema": {"type": "object"}}, "image/svg+xml": {"schema": TEXT},
                                  "text/plain": {"schema": TEXT}})},
             [parameter("format", {"enum": list(system.GRAPH)}, "By default JSON")]),
    Endpoint("GET", "/api/metrics", system.metrics, "metrics", "What buffers, micro-batches or queries have done",
             {200: ("A table", _TABLE)}, [parameter("of", {"enum": ["work", "queries"]}, "By default work"), _FORMAT]),
    Endpoint("GET", "/api/settings", system.settings, "settings", "What the server was told; for administrators",
             {200: ("The settings", content({"type": "object"}))}),
    Endpoint("PATCH", "/api/settings", system.configure, "configure", "Work in another way; answers stay the same",
             {204: "Done"}, body=content(struct(["settings"], no_more=True, query=TEXT,
                                                settings={"type": "object", "minProperties": 1}))),
    Endpoint("GET", "/api/sys/{table}", system.sys_table, "sysTable", "A table such as sys.streams",
             {200: ("A table", _TABLE)}, [_FORMAT]),
    Endpoint("POST", "/api/settle", system.settle, "settle", "Wait until what was pushed has been worked on",
             {204: "It has"}, body=content(struct([], no_more=True, query=TEXT))),
    Endpoint("POST", "/api/functions", system.create_function, "createFunction",
             "Let queries call a Python function; for administrators, where the settings allow it", {204: "Done"},
             body=content(struct(["name", "source", "args", "returns"], no_more=True, name=TEXT, source=TEXT,
                                 args=array(TEXT), returns=TEXT))),
    Endpoint("POST", "/api/sql", sql.sql, "sql", "Run statements; a SELECT is answered once, over what stands now",
             {200: ("What each gave", content(ref("Results"), CSV, ARROW))},
             [_FORMAT, parameter("tables", {"enum": ["rows", "arrow"]}, "In JSON: as rows, or as Arrow in base64")],
             content(ref("Statements")) | {"text/plain": {"schema": TEXT}}),
    Endpoint("POST", "/api/explain", queries.explain_text, "explain", "The plan of a query that is not registered",
             _EXPLAIN, body=content(struct(["cql"], no_more=True, cql=TEXT, format={"enum": list(queries.EXPLAIN)}))),
)  # fmt: skip

_STREAMS = (
    Endpoint("GET", "/api/streams", streams.list_streams, "listStreams", "All streams",
             {200: (_LIST, content(everything(streams=array(ref("Stream")))))}),
    Endpoint("POST", "/api/streams", streams.create_stream, "createStream", "Declare a stream",
             {201: ("It is there", _STREAM)}, body=content(ref("NewStream"))),
    Endpoint("GET", "/api/streams/{stream}", streams.get_stream, "getStream", "A stream", {200: ("It", _STREAM)}),
    Endpoint("DELETE", "/api/streams/{stream}", streams.drop_stream, "dropStream", "Drop a stream that no query reads",
             {204: "It is gone"}),
    Endpoint("POST", "/api/streams/{stream}/rows", streams.push_to_stream, "pushRows", "Rows for a stream: all or none",
             {200: ("They are taken, and durable as `sync` says", content(ref("Pushed")))}, [_KEY], _ROWS),
    Endpoint("POST", "/api/streams/{stream}/heartbeat", streams.heartbeat, "heartbeat",
             "No more rows before an instant", {200: ("The stream", _STREAM)},
             body=content(struct(["at"], no_more=True, at={"type": ["integer", "string"]}))),
    Endpoint("POST", "/api/streams/{stream}/close", streams.close_stream, "closeStream", "No more rows at all",
             {200: ("The stream", _STREAM)}),
    Endpoint("POST", "/api/streams/{stream}/late", streams.late, "takeLate", "Take the rows that came too late",
             {200: ("Those since the last call", _TABLE)}, [_FORMAT]),
    Endpoint("POST", "/api/streams/{stream}/apart", streams.apart, "takeApart", "Take the rows that did not fit",
             {200: ("Those since the last call", _TABLE)}, [_FORMAT]),
    Endpoint("GET", "/api/relations", streams.list_relations, "listRelations", "All relations",
             {200: (_LIST, content(everything(relations=array(ref("Relation")))))}),
    Endpoint("POST", "/api/relations", streams.create_relation, "createRelation", "Declare a relation",
             {201: ("It is there", _RELATION)}, body=content(ref("NewRelation"))),
    Endpoint("GET", "/api/relations/{relation}", streams.get_relation, "getRelation", "A relation",
             {200: ("It", _RELATION)}),
    Endpoint("DELETE", "/api/relations/{relation}", streams.drop_relation, "dropRelation",
             "Drop a relation that no query reads", {204: "It is gone"}),
    Endpoint("GET", "/api/relations/{relation}/rows", streams.relation_rows, "relationRows",
             "What a relation holds now", {200: ("Its rows", _TABLE)}, [_FORMAT]),
    Endpoint("POST", "/api/relations/{relation}/rows", streams.push_to_relation, "pushRelationRows",
             "Rows for a relation: all or none", {200: ("They are taken", content(ref("Pushed")))},
             [_KEY, parameter("at", TEXT, "When the change happens: ticks, or a time")], _ROWS),
)  # fmt: skip

_QUERIES = (
    Endpoint("GET", "/api/queries", queries.list_queries, "listQueries", "All queries",
             {200: (_LIST, content(everything(queries=array(ref("Query")))))},
             [parameter("ended", FLAG, "Whether stopped ones are listed, too; by default they are")]),
    Endpoint("POST", "/api/queries", queries.create_query, "createQuery", "Register a continuous query",
             {201: ("It runs", _QUERY)}, body=content(ref("NewQuery"))),
    Endpoint("GET", "/api/queries/{query}", queries.get_query, "getQuery", "A query, also one that has ended",
             {200: ("It", _QUERY)}),
    Endpoint("PATCH", "/api/queries/{query}", queries.alter_query, "alterQuery", "Change options while it runs",
             {200: ("The query", _QUERY)}, body=content(ref("QueryOptions")), description="null takes an option back."),
    Endpoint("DELETE", "/api/queries/{query}", queries.stop_query, "stopQuery", "Stop a query",
             {200: ("How it ended", _QUERY)}),
    Endpoint("POST", "/api/queries/{query}/suspend", queries.suspend_query, "suspendQuery", "Let a query rest",
             {200: ("The query", _QUERY)}),
    Endpoint("POST", "/api/queries/{query}/resume", queries.resume_query, "resumeQuery", "Let a query go on",
             {200: ("The query", _QUERY)}),
    Endpoint("GET", "/api/queries/{query}/answers", answers.answers, "answers",
             "Results of a query, as they come or in pages", _PAGE, _ANSWERS, description=_EVENTS),
    Endpoint("GET", "/api/queries/{query}/current", queries.current, "current", "The answer as it stands now",
             {200: ("Its rows", _TABLE)}, [_FORMAT]),
    Endpoint("GET", "/api/queries/{query}/explain", queries.explain_query, "explainQuery", "The plan of a query",
             _EXPLAIN, [parameter("format", {"enum": list(queries.EXPLAIN)}, "By default text")]),
    Endpoint("GET", "/api/subscriptions", answers.list_subscriptions, "listSubscriptions", "Named subscriptions",
             {200: ("The user's own; all for administrators",
                    content(everything(subscriptions=array(ref("Subscription")))))}),
    Endpoint("POST", "/api/subscriptions", answers.create_subscription, "createSubscription",
             "Make a named subscription, which survives its client and the server",
             {201: ("It is there", _SUBSCRIPTION)}, body=content(ref("NewSubscription"))),
    Endpoint("GET", "/api/subscriptions/{subscription}", answers.get_subscription, "getSubscription",
             "A named subscription", {200: ("It", _SUBSCRIPTION)}),
    Endpoint("DELETE", "/api/subscriptions/{subscription}", answers.drop_subscription, "dropSubscription",
             "Forget a named subscription", {204: "It is gone"}),
    Endpoint("GET", "/api/subscriptions/{subscription}/answers", answers.subscription_answers, "subscriptionAnswers",
             "Results that are not confirmed, as they come or in pages", _PAGE, _ANSWERS, description=_EVENTS),
    Endpoint("POST", "/api/subscriptions/{subscription}/confirm", answers.confirm, "confirm",
             "The client has every result before a position", {200: ("Durable", _SUBSCRIPTION)},
             body=content(struct(["position"], no_more=True, position=POSITION))),
)  # fmt: skip

ENDPOINTS: tuple[Endpoint, ...] = (*_PAGES, *_SERVER, *_STREAMS, *_QUERIES)
