"""The words of the language, for whoever completes or colours a text. The parser has its own view of them."""

KEYWORDS = [
    "ALL", "ALTER", "AND", "ANTI", "AS", "ASC", "AVG", "BEGIN", "BETWEEN", "BIGINT", "BINARY", "BOOLEAN", "BY", "CASE",
    "CAST", "COALESCE", "COLLECT", "COUNT", "CREATE", "CROSS", "DATE", "DECIMAL", "DELETE", "DESC",
    "DESCRIBE", "DISTINCT", "DOUBLE", "DROP", "DSTREAM", "ELSE", "END", "EVERY", "EXCEPT", "EXISTS",
    "EXPLAIN", "FALSE", "FILTER", "FIRST", "FROM", "FULL", "GAP", "GROUP", "HAVING", "HOP", "HOPPING", "IN",
    "INNER", "INSERT", "INT", "INTERSECT", "INTERVAL", "INTO", "IS", "ISNULL", "ISTREAM", "JOIN", "KEY",
    "LAST", "LEFT", "LIKE", "LIMIT", "MASTER", "MAX", "MEDIAN", "MIN", "NATURAL", "NOT", "NOTNULL", "NOW",
    "NULL", "NULLIF", "ON", "OR", "ORDER", "PARTITION", "PERCENTILE", "PRIORITY", "QUERIES", "QUERY", "RANGE",
    "REAL", "RELATION", "RELATIONS", "RESUME", "RIGHT", "ROWS", "RSTREAM", "SELECT", "SEMI", "SESSION", "SET", "SHOW",
    "SIZE", "SLACK", "SLIDE", "STDDEV", "STOP", "STREAM", "STREAMS", "STRING", "SUM", "SUSPEND", "THEN", "TIMESTAMP",
    "TRUE", "TUMBLING", "TUPLES", "UNBOUNDED", "UNION", "UPDATE", "USING", "VALUES", "VARIANCE", "VIEW",
    "WHEN", "WHERE", "WINDOW", "WITH",
]  # fmt: skip
