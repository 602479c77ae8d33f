"""Each rule on plans made for it, as text in ``golden/<rule>.txt``.

``PENSTOCK_UPDATE_GOLDEN=1`` writes the files anew; read the difference before keeping it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.plan.golden_cases import CASES

from penstock.plan.explain import explain_text
from penstock.plan.nodes import Query
from penstock.plan.rules import RULES, Rule

GOLDEN = Path(__file__).parent / "golden"


def _tree(plan: Query) -> str:
    return explain_text(plan).split("\n\n")[0]


@pytest.mark.parametrize("rule", dict.fromkeys(RULES), ids=lambda r: r.__name__)
def test_rule_rewrites_as_in_its_golden_file(rule: Rule) -> None:
    name = rule.__name__
    parts = []
    for title, plan in CASES[name]():
        after = rule(plan)
        outcome = "(unchanged)" if after == plan else _tree(after)
        parts.append(f"# {title}\n{_tree(plan)}\n->\n{outcome}\n")
    text = "\n".join(parts)
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("PENSTOCK_UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text


def test_every_golden_file_belongs_to_a_rule() -> None:
    assert {f.stem for f in GOLDEN.glob("*.txt")} == set(CASES)
