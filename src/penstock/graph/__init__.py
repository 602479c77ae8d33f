"""One graph of operators for all queries of a database: equal parts of queries are one part."""
