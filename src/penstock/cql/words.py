"""Words of other systems' SQL that are not names, and what CQL has instead of them.

``AFTER_SOURCE`` and ``AFTER_VALUE`` are never aliases unless AS stands before them: swallowed as a name,
``dept ASOF JOIN emp`` would be an inner join and ``FROM s NOW`` would have no window.
"""

from __future__ import annotations

# Windows whose brackets were forgotten, each with one that may be meant.
WINDOWS = {
    "NOW": "[NOW]",
    "ROWS": "[ROWS 10]",
    "RANGE": "[RANGE 10 MINUTES]",
    "UNBOUNDED": "[UNBOUNDED]",
    "TUMBLING": "[TUMBLING 10 MINUTES]",
    "HOPPING": "[HOPPING 10 MINUTES EVERY 1 MINUTE]",
    "SESSION": "[SESSION GAP 10 MINUTES]",
    "PARTITION": "[PARTITION BY k ROWS 1]",
    "PARTITION BY": "[PARTITION BY k ROWS 1]",
    "BEGIN": "[BEGIN WINDOW … END WINDOW …]",
}

# What may follow an entry of FROM. Words that are reserved here anyway (CROSS, OFFSET, …) need not be listed.
AFTER_SOURCE = frozenset({
    *WINDOWS,
    # joins: Spark and DuckDB (SEMI, ANTI), DuckDB (ASOF, POSITIONAL), PostgreSQL and Flink (LATERAL), ClickHouse
    # (GLOBAL)
    "SEMI", "ANTI", "ASOF", "POSITIONAL", "LATERAL", "GLOBAL",
    # tables made from a table: PostgreSQL and Flink (TABLESAMPLE), DuckDB (SAMPLE), DuckDB and Spark (PIVOT, UNPIVOT),
    # Flink (MATCH_RECOGNIZE), ClickHouse (FINAL)
    "TABLESAMPLE", "SAMPLE", "PIVOT", "UNPIVOT", "MATCH_RECOGNIZE", "FINAL",
    # a table as it was: Flink (FOR SYSTEM_TIME AS OF), Spark (the others with AS OF), DuckDB (AT)
    "FOR", "SYSTEM_TIME", "SYSTEM_VERSION", "VERSION", "TIMESTAMP", "AT",
    # streams: Spark (WATERMARK), ksqlDB (EMIT CHANGES, WITHIN)
    "WATERMARK", "EMIT", "WITHIN",
    # clauses behind FROM: PostgreSQL and Flink (WINDOW, FETCH, FOR), DuckDB (QUALIFY), Spark (CLUSTER, DISTRIBUTE and
    # SORT BY, MINUS, SETMINUS), PostgreSQL behind INSERT and its like (RETURNING)
    "WINDOW", "FETCH", "QUALIFY", "CLUSTER", "DISTRIBUTE", "SORT", "MINUS", "SETMINUS", "RETURNING",
    # clauses of CQL without their second word
    "GROUP", "ORDER", "BY",
    # operators of PostgreSQL and DuckDB, which are no names there
    "ISNULL", "NOTNULL",
})  # fmt: skip

# What may follow a value: operators that CQL does not have, and what belongs to the call of a function.
AFTER_VALUE = frozenset({
    # PostgreSQL and Flink (SIMILAR TO, OVERLAPS), Spark (RLIKE, REGEXP), DuckDB (GLOB), all (COLLATE)
    "SIMILAR", "OVERLAPS", "RLIKE", "REGEXP", "GLOB", "COLLATE",
    # behind a call: all (FILTER, OVER, WITHIN GROUP), DuckDB and Flink (IGNORE and RESPECT NULLS)
    "FILTER", "OVER", "WITHIN", "IGNORE", "RESPECT",
    # behind `*`: DuckDB (EXCLUDE, REPLACE, RENAME)
    "EXCLUDE", "REPLACE", "RENAME",
})  # fmt: skip

# Naming them beats complaining about whatever comes after them.
NOT_CQL = (AFTER_SOURCE | AFTER_VALUE | {
    "UNNEST", "ROLLUP", "CUBE", "RECURSIVE", "MERGE", "GRANT", "REVOKE", "TRUNCATE", "COMMIT", "ROLLBACK",
    "TABLE", "INDEX",
}) - {*WINDOWS, "SEMI", "ANTI", "FILTER", "FOR", "TIMESTAMP", "AT", "GROUP", "ORDER", "BY", "WINDOW",
      "REPLACE", "ISNULL", "NOTNULL", "VERSION"}  # fmt: skip

# What to write for the same. A word that is not here has nothing like it.
INSTEAD = {
    "SEMI": "write SEMI JOIN",
    "ANTI": "write ANTI JOIN",
    "ASOF": "join s [NOW] with r [PARTITION BY k ROWS 1], which holds the newest row of each k",
    "PIVOT": "write an aggregate for each column, as in sum(x) FILTER (WHERE k = 1)",
    "UNPIVOT": "write a SELECT for each column, and UNION ALL between them",
    "FOR": "rows of s [NOW] meet a relation as it is at their instant, without FOR",
    "WATERMARK": "write TIMESTAMP BY … SLACK … where the stream is declared",
    "FETCH": "write LIMIT and a number",
    "MINUS": "write EXCEPT",
    "SETMINUS": "write EXCEPT",
    "GROUP": "write GROUP BY",
    "ORDER": "write ORDER BY",
    "FILTER": "write FILTER (WHERE …)",
    "RLIKE": "write regexp_like(text, pattern)",
    "REGEXP": "write regexp_like(text, pattern)",
    "EXCLUDE": "name the columns that are wanted",
    "RENAME": "name the columns, with AS and another name",
    "TRUNCATE": "write DELETE FROM and a relation",
}
