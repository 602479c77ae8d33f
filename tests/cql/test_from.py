"""What stands in FROM, and how it is joined: the answers that SQL gives, on all engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock import Database
from penstock.cql.words import AFTER_SOURCE, AFTER_VALUE

ENGINES = ("reference", "local")
DECLARED = """
CREATE RELATION a (x INT, p STRING); CREATE RELATION b (x INT, y INT); CREATE RELATION c (y INT, z STRING);
CREATE RELATION w (text STRING, n INT);
INSERT INTO a VALUES (1, 'one'), (2, 'two'), (3, 'three'), (NULL, 'none');
INSERT INTO b VALUES (2, 5), (3, 6), (3, 6), (NULL, 9), (4, 8);
INSERT INTO c VALUES (6, 'six'), (7, 'seven');
INSERT INTO w VALUES ('x', 1), (NULL, 2);
CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, w DOUBLE) TIMESTAMP BY t;
"""
N = None
ANSWERS = [
    # LIMIT and its like behind parentheses
    ("(SELECT x FROM a) ORDER BY x DESC LIMIT 2", "x", [(3,), (2,)]),
    ("(SELECT x FROM a) ORDER BY x OFFSET 2", "x", [(2,), (3,)]),
    ("((SELECT x FROM a) ORDER BY x DESC LIMIT 3) ORDER BY x LIMIT 1", "x", [(1,)]),
    ("(SELECT x FROM a ORDER BY x DESC LIMIT 3) ORDER BY 1 LIMIT 1 OFFSET 1", "x", [(2,)]),
    ("(SELECT x FROM a UNION SELECT x FROM b) ORDER BY x DESC LIMIT 1", "x", [(4,)]),
    ("(SELECT x FROM a WHERE x = 1) UNION ((SELECT x FROM b) ORDER BY x DESC LIMIT 1)", "x", [(1,), (4,)]),
    ("SELECT x FROM ((SELECT x FROM a) ORDER BY x DESC LIMIT 1) AS q", "x", [(3,)]),
    ("SELECT x FROM a WHERE x IN ((SELECT x FROM b) ORDER BY x DESC LIMIT 2)", "x", [(3,)]),
    ("SELECT x FROM a WHERE x = ((SELECT x FROM b) ORDER BY x DESC LIMIT 1) - 1", "x", [(3,)]),
    ("WITH q AS (SELECT x FROM a) (SELECT x FROM q) ORDER BY x DESC LIMIT 1", "x", [(3,)]),
    ("WITH q AS (SELECT x FROM a) ISTREAM(SELECT x FROM q WHERE x > 2)", "x", [(3,)]),
    ("SELECT n FROM (WITH q AS (SELECT n FROM w) (SELECT n FROM q) LIMIT 1) AS z", "n", [(1,)]),
    # a comma binds less than JOIN
    ("SELECT * FROM w, b FULL JOIN c USING (y) WHERE z = 'seven'", "text n y x z",
     [("x", 1, 7, N, "seven"), (N, 2, 7, N, "seven")]),
    ("SELECT n, x, z FROM w, b LEFT JOIN c ON b.y = c.y, (SELECT z AS o FROM c) AS d WHERE n = 1 AND x = 2 AND o = z",
     "n x z", []),
    ("SELECT n, p, y FROM b RIGHT JOIN a ON a.x = b.x, w WHERE p = 'one'", "n p y", [(1, "one", N), (2, "one", N)]),
    ("SELECT a.x, n FROM w CROSS JOIN a JOIN b ON a.x = b.x AND n = 1 AND y = 5", "x n", [(2, 1)]),
    # joined columns first
    ("SELECT * FROM b JOIN a USING (x) WHERE x = 2", "x y p", [(2, 5, "two")]),
    ("SELECT * FROM c JOIN b USING (y)", "y z x", [(6, "six", 3), (6, "six", 3)]),
    ("SELECT * FROM a JOIN b USING (x) JOIN c USING (y)", "y x p z", [(6, 3, "three", "six")] * 2),
    ("SELECT * FROM a RIGHT JOIN b USING (x) WHERE p IS NULL", "x p y", [(4, N, 8), (N, N, 9)]),
    ("SELECT * FROM a FULL JOIN b USING (x) WHERE p IS NULL OR y ISNULL", "x p y",
     [(1, "one", N), (4, N, 8), (N, "none", N), (N, N, 9)]),
    ("SELECT * FROM a FULL JOIN b USING (x) JOIN (SELECT n * 2 AS x, text FROM w) AS d USING (x) WHERE x = 4",
     "x p y text", [(4, N, 8, N)]),
    ("SELECT a.*, b.* FROM a JOIN b USING (x) WHERE x = 2", "x p x_2 y", [(2, "two", 2, 5)]),
    ("SELECT * FROM a NATURAL JOIN b WHERE x = 2", "x p y", [(2, "two", 5)]),
    ("SELECT * FROM a NATURAL LEFT JOIN b NATURAL JOIN c", "y x p z", [(6, 3, "three", "six")] * 2),
    # semi and anti joins
    ("SELECT * FROM a SEMI JOIN b USING (x)", "x p", [(2, "two"), (3, "three")]),
    ("SELECT * FROM a LEFT SEMI JOIN b ON a.x = b.x AND y > 5", "x p", [(3, "three")]),
    ("SELECT * FROM a ANTI JOIN b USING (x)", "x p", [(1, "one"), (N, "none")]),
    ("SELECT p FROM a LEFT ANTI JOIN b ON a.x < b.x", "p", [("none",)]),
    ("SELECT p, n FROM a SEMI JOIN b USING (x) JOIN w ON n = x", "p n", [("two", 2)]),
    ("SELECT n, p FROM w, a ANTI JOIN b USING (x) WHERE n = 1", "n p", [(1, "one"), (1, "none")]),
    ("SELECT x FROM a NATURAL ANTI JOIN b", "x", [(1,), (N,)]),
    # operators behind a value
    ("SELECT n ISNULL AS i, text NOTNULL AS t FROM w", "i t", [(False, True), (False, False)]),
    ("SELECT n FROM w WHERE text ISNULL", "n", [(2,)]),
    ("SELECT n FROM w WHERE NOT text ISNULL AND n NOTNULL", "n", [(1,)]),
]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("text", "names", "rows"), ANSWERS, ids=[text for text, _, _ in ANSWERS])
def test_answers(text: str, names: str, rows: list[tuple[object, ...]], engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARED)
        answer = db.query(text).fetch().drop_columns(["ts", "op"])
        assert answer.column_names == names.split()
        assert sorted(map(repr, zip(*answer.to_pydict().values(), strict=True))) == sorted(map(repr, rows))


@pytest.mark.parametrize("engine", ENGINES)
def test_semi_and_anti_joins_follow_both_streams(engine: str) -> None:
    """A row comes and goes with the rows that match it, and however many do, it is there once."""
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARED)
        semi = db.query("SELECT k, v FROM s SEMI JOIN r [RANGE 10] USING (k)")
        anti = db.query("SELECT k, v FROM s ANTI JOIN r [RANGE 10] USING (k)")
        exists = db.query("SELECT k, v FROM s WHERE EXISTS (SELECT 1 FROM r [RANGE 10] WHERE r.k = s.k)")
        db.push("s", [(1, 7, 0.5), (2, 8, 1.5)])
        db.push("r", [(3, 7, 0.0), (4, 7, 0.0), (20, 1, 0.0)])
        db.close_stream("s")
        db.close_stream("r")
        changes = [(c["ts"], c["op"], c["k"]) for c in semi.fetch().to_pylist()]
        assert changes == [(3, "+", 7), (14, "-", 7)]
        assert exists.fetch().num_rows == 2
        assert [(c["ts"], c["op"], c["k"]) for c in anti.fetch().to_pylist()] == [
            (1, "+", 7), (2, "+", 8), (3, "-", 7), (14, "+", 7),
        ]  # fmt: skip


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARED)
        yield db


def refused(db: Database, text: str) -> str:
    with pytest.raises(penstock.PenstockError) as caught:
        db.explain(text)
    return caught.value.one_line


@pytest.mark.parametrize("word", sorted(AFTER_SOURCE))
def test_a_word_behind_a_source_is_an_alias_only_with_as(db: Database, word: str) -> None:
    for source in ("s", "(SELECT k FROM s)", "ISTREAM(SELECT k FROM s)", "a, s", "a CROSS JOIN s"):
        for text in (word, word.lower()):
            assert text.upper() in refused(db, f"SELECT k FROM {source} {text}").upper()
    if " " not in word:
        db.explain(f"SELECT {word}.k FROM s AS {word}")
    db.explain(f'SELECT "{word}".k FROM s "{word}"')


@pytest.mark.parametrize("word", sorted(AFTER_VALUE))
def test_a_word_behind_a_value_is_an_alias_only_with_as(db: Database, word: str) -> None:
    assert word in refused(db, f"SELECT k {word} FROM s")
    db.explain(f"SELECT k AS {word} FROM s WHERE k > 0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM w, b FULL JOIN c ON n = y", "`n` stands before a comma, and a comma binds less than JOIN"),
        ("SELECT * FROM w, b JOIN c ON w.n = y", "`w` stands before a comma, and a comma binds less than JOIN"),
        ("SELECT x FROM a, b", "`x` could mean `a.x`, `b.x`"),
        ("SELECT x FROM a JOIN b USING (x) JOIN (SELECT x FROM a) AS d ON d.x = b.x", "`x` could mean `a.x`, `b.x`"),
        ("SELECT y FROM a SEMI JOIN b USING (x)", "no column `y` in relation `a`"),
        ("SELECT b.y FROM a SEMI JOIN b USING (x)", "no `b` in FROM"),
        ("SELECT * FROM a, b AS a", "`a` stands twice in FROM"),
        ("SELECT * FROM a NATURAL JOIN w", "NATURAL JOIN of two sides that have no column in common"),
        ("SELECT * FROM a NATURAL w", "expected JOIN, found `w`"),
        ("SELECT * FROM a RIGHT ANTI JOIN b USING (x)", "RIGHT ANTI JOIN is not part of CQL"),
        ("SELECT * FROM a SEMI JOIN b", "expected ON and a condition, or USING and columns"),
        ("(SELECT x FROM a) ORDER BY p", "names or numbers of columns"),
        ("(SELECT x FROM a) LIMIT 1 LIMIT 2", "unexpected `LIMIT`"),
        ("SELECT x + 5 MINUTES FROM a", "a length of time is an INTERVAL; write INTERVAL '5' MINUTES"),
    ],
)
def test_refused(db: Database, text: str, said: str) -> None:
    assert said in refused(db, text)
