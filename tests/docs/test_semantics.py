"""docs/concepts/semantics.md says what queries mean; every example of it is true on every engine."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.docs.fences import DOCS, fences
from tests.notation import Case, Example, Malformed, parse, run

TEXT = (DOCS / "concepts/semantics.md").read_text(encoding="utf-8")
BLOCKS = list(fences(TEXT))
EXAMPLES = [(f"{b.heading.lstrip('# ')} (line {b.line})", parse(b.text)) for b in BLOCKS]
CASES = [
    pytest.param(example, case, id=f"{name}, query {i}")
    for name, example in EXAMPLES
    for i, case in enumerate(example.cases, 1)
]


@pytest.mark.parametrize("one_by_one", [True, False], ids=["row by row", "at once"])
@pytest.mark.parametrize(("example", "case"), CASES)
def test_example_of_the_semantics(example: Example, case: Case, one_by_one: bool, engine: str) -> None:
    run(example, case, engine, one_by_one=one_by_one)


def test_every_rule_has_an_example() -> None:
    rules = [line for line in TEXT.splitlines() if line.startswith("### ")]
    assert len(set(rules)) == len(rules) > 40
    assert all(block.language == "example" for block in BLOCKS)
    assert Counter(block.heading for block in BLOCKS).keys() == set(rules)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM s\n",
        "SELECT a FROM s\n\n",
        "=> [1] + 1\n",
        "SELECT a FROM s\n=> [1] 10\n",
        "SELECT a FROM s\n=> 1 + 10\n",
        "SELECT a FROM s\n=> [1] + ten\n",
        "s: 1, 2\nSELECT a FROM s\n=> nothing\n",
        "CREATE STREAM s (a INT)\n",
        "SELECT a FROM s\n=> nothing\ns: (1)\n",
        "SELECT a FROM s\n\nSELECT b FROM s\n=> nothing\n",
        "SELECT a FROM s\n=> nothing\nearlier s: (1)\nSELECT a FROM s\n=> nothing\n",
        "what is this\nSELECT a FROM s\n=> nothing\n",
    ],
)
def test_an_example_that_is_not_in_the_notation_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text)


def test_an_example_that_answers_otherwise_fails() -> None:
    head = "CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t;\ns: (1, 10), (2, 10)\n"
    right = parse(head + "SELECT a FROM s\n=> [1] + 10\n=> [2] + 10\n")
    run(right, right.cases[0], "reference", one_by_one=True)
    for wrong in ("=> [1] + 10", "=> [1] + 10\n=> [2] - 10", "=> [1] + 10\n=> [2] + 10.0", "=> refused: no"):
        example = parse(f"{head}SELECT a FROM s\n{wrong}\n")
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            run(example, example.cases[0], "reference", one_by_one=False)
