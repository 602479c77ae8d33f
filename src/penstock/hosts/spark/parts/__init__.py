"""``connect()`` on Spark: each part of a database's queries is one Structured Streaming query.

    push ──▶ ingest ──▶ log of the stream                      (storage: acknowledged)
                           │  offset: up to which entry
                 Python streaming source of a part ── a partition for each slot ──▶ read(partition): state before ─▶
                           ▲                                    operators ─▶ state after, answers
                 commit    │                                          │ a report for each slot
                       Spark's streaming query ──▶ foreachBatch: the log of results ──▶ readers

A *part* is a set of queries that share micro-batches. A *slot* is its share of the rows: queries with a key are split
over all slots, others are in one. The streaming source runs in a Python process of Spark's (``source``), which asks the
database's process what the next micro-batch consists of (``talk``). The work is done inside ``read`` of the source, in
Spark's Python workers (``slot``). What a micro-batch gave counts when it is in the log of results, with the state that
each slot left; a micro-batch that is tried again, anywhere, starts from the state before it.

| module | owns |
|---|---|
| ``host`` | what the database sees: logs, results, what is stored when |
| ``part``, ``parts`` | what a micro-batch consists of; which queries are in which part, and how they move |
| ``grouping``, ``load``, ``gate`` | which queries belong together; what is measured; who is next |
| ``cluster`` | Spark itself: sessions, streaming queries, and that they go on |
| ``talk``, ``source`` | between the database and Spark's processes |
| ``task``, ``definitions``, ``feed`` | what a task is told, and what it reads |
| ``slot`` | what a task does; knows nothing of Spark |
| ``runner``, ``view`` | a query as the database holds it; the graph of all |

Owns: the Spark host. Must not know: how rows are stored (``storage``) or operators work. Enter at: ``host``.
"""
