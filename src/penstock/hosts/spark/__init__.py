"""The Spark host: the programs of ``hosts.local`` inside Spark's Python workers.

    source ── scatter ──┐
    source ── scatter ──┼─ union ── a partition for each shard ── gather ── answers
    relation ─ scatter ─┘

*Scatter* (a task for each partition of a source) cuts rows by the shard that their key names and packs them, so that
few fat rows cross the shuffle, and tells every shard how far the source is. *Gather* (a task for each shard) puts a
shard's rows in order and lets its programs run. In a streaming query it starts from the state that the micro-batch
before it left under the checkpoint location, and leaves its own there before it gives any answer away.

A streaming query with one shard does all that in one task, *direct*, without a shuffle.

| module | owns |
|---|---|
| ``schemas`` | Spark's types and ours |
| ``job`` | what is sent to the workers: sources, queries, how rows are split |
| ``native`` | the expressions that are Spark's own |
| ``pushdown`` | rows that Spark need not read |
| ``keys`` | the shard of a row |
| ``scatter``, ``gather``, ``direct`` | what a task does |
| ``worker`` | what a worker keeps of what it is sent |
| ``shard`` | one shard: order, lateness, progress, its programs; knows nothing of Spark |
| ``checkpoint`` | where state is, which version counts, what a worker may remember |
| ``begun`` | what a checkpoint was begun with |
| ``outputs`` | the answers of a pipeline into a folder for each query |
| ``metrics`` | what a micro-batch cost |
| ``running`` | waiting, stopping, and what a failure means |
| ``session``, ``ship`` | a Spark session, and Penstock on its workers |
| ``described`` | what Spark's UI calls jobs and streaming queries |
| ``declared`` | DataFrames that are declared |
| ``compile`` | from texts and DataFrames to a job and a DataFrame of answers |
"""
