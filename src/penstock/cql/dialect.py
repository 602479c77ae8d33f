"""CQL as a sqlglot dialect: which words are keywords, and who parses and prints.

Only words the grammar cannot do without are keywords; all others (ROWS, MASTER, STREAM, …) are known by
where they stand, so that they stay free as names.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import tokens
from sqlglot.dialects.dialect import Dialect, NormalizationStrategy
from sqlglot.tokenizer_core import TokenType

from penstock.cql.generator import CqlGenerator
from penstock.cql.parser import CqlParser

_OPERATORS = ("::", "||", ">=", "<=", "<>", "!=")
_WORDS = (
    "ALL", "AND", "ASC", "AS", "BETWEEN", "CASE", "CREATE", "CROSS", "DELETE", "DESC", "DESCRIBE", "DISTINCT",
    "DIV", "DROP", "ELSE", "END", "ESCAPE", "EXCEPT", "EXISTS", "FALSE", "FILTER", "FROM", "FULL", "GROUP BY",
    "HAVING", "ILIKE", "IN", "INNER", "INSERT", "INTERSECT", "INTERVAL", "INTO", "IS", "ISNULL", "JOIN", "LEFT", "LIKE",
    "LIMIT", "NATURAL", "NOT", "NOTNULL", "NULL", "OFFSET", "ON", "OR", "ORDER BY", "OUTER", "PARTITION BY", "RIGHT",
    "SELECT", "SET", "THEN", "TRUE", "UNION", "UPDATE", "USING", "VALUES", "WHEN", "WHERE", "WITH",
)  # fmt: skip
_TYPES = {
    "BOOL": TokenType.BOOLEAN,
    "BOOLEAN": TokenType.BOOLEAN,
    "INT": TokenType.INT,
    "INTEGER": TokenType.INT,
    "BIGINT": TokenType.BIGINT,
    "REAL": TokenType.FLOAT,
    "FLOAT": TokenType.FLOAT,
    "DOUBLE": TokenType.DOUBLE,
    "DOUBLE PRECISION": TokenType.DOUBLE,
    "DECIMAL": TokenType.DECIMAL,
    "NUMERIC": TokenType.DECIMAL,
    "STRING": TokenType.TEXT,
    "VARCHAR": TokenType.TEXT,
    "TEXT": TokenType.TEXT,
    "BINARY": TokenType.BINARY,
    "BYTES": TokenType.BINARY,
    "DATE": TokenType.DATE,
    "TIMESTAMP": TokenType.TIMESTAMP,
}


class CQL(Dialect):
    """Registered with sqlglot as ``cql``."""

    NORMALIZATION_STRATEGY = NormalizationStrategy.CASE_INSENSITIVE
    NORMALIZE_FUNCTIONS = False

    class Tokenizer(tokens.Tokenizer):
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **{word: tokens.Tokenizer.KEYWORDS[word] for word in (*_OPERATORS, *_WORDS)},
            **_TYPES,
        }
        COMMANDS: ClassVar[set[TokenType]] = set()
        TOKENS_PRECEDING_HINT: ClassVar[set[TokenType]] = set()

    Parser = CqlParser
    Generator = CqlGenerator
