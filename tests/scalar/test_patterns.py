"""LIKE and ILIKE: escapes, cases of letters beyond ASCII, and the kernels that stand in for regular expressions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import functions
from penstock.kernels.batch import RowErrors
from penstock.kernels.expressions import compile_expr
from penstock.model.types import BOOLEAN, STRING
from penstock.scalar import Context, evaluate
from penstock.scalar.expr import Call, Column, Literal

TEXTS = [
    None, "", "a", "A", "ab", "a_b", "axb", "a%b", "a\\b", "a\\xb", "%", "_", "\\", "ß", "SS", "STRASSE", "straße",
    "Μάϊος", "ΜΆΪΟΣ", "İ", "i", "K", "k", "100%", "100", "a\nb",
]  # fmt: skip
PATTERNS = [
    "", "%", "_", "%%", "a", "a%", "%b", "%x%", "a_b", "a\\_b", "a\\%b", "a\\\\%", "\\%", "\\a", "%\\%", "100\\%%",
    "ΜΆΪΟΣ", "μάϊοσ", "STRASSE", "straẞe", "K", "a\\_%", "%\\_b", "%\\\\%",
]  # fmt: skip


@pytest.mark.parametrize("name", ["like", "ilike"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_columns_and_rows_agree(name: str, pattern: str) -> None:
    for escape in ("\\", "", "a", "%"):
        if escape == "a" and pattern.endswith("a"):
            continue
        call = Call(name, (Column(0, STRING), Literal(pattern, STRING), Literal(escape, STRING)), BOOLEAN)
        context = Context()
        rows = [evaluate(call, (text,), context) for text in TEXTS]
        found = compile_expr(call, {})([pa.array(TEXTS, pa.string())], len(TEXTS), RowErrors())
        assert found.to_pylist() == rows


@pytest.mark.parametrize(
    ("text", "pattern", "like", "ilike"),
    [
        ("a_b", "a\\_b", True, True),
        ("axb", "a\\_b", False, False),
        ("A%", "a\\%", False, True),
        ("a\\b", "a\\\\b", True, True),
        ("ab", "\\a\\b", True, True),
        ("Μάϊος", "ΜΆΪΟΣ", False, True),
        ("ΟΔΟΣ", "%ς", False, True),
        ("ß", "_", True, True),
        ("STRAẞE", "straße", False, True),
        ("STRASSE", "straße", False, False),
        ("İstanbul", "İ%", True, True),
    ],
)
def test_what_matches(text: str, pattern: str, like: bool, ilike: bool) -> None:
    for name, expected in (("like", like), ("ilike", ilike)):
        call = functions.resolve(name, [Literal(text, STRING), Literal(pattern, STRING)])
        assert evaluate(call, (), Context()) is expected


def test_without_an_escape_a_backslash_is_a_character() -> None:
    text, pattern, none = (Literal(t, STRING) for t in ("C:\\x", "C:\\_", ""))
    assert evaluate(functions.resolve("like", [text, pattern, none]), (), Context()) is True
    # A plan that names no escape, as releases before this one saved it, has none.
    assert evaluate(Call("like", (text, pattern), BOOLEAN), (), Context()) is True
