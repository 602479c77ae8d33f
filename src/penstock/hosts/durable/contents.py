"""What a directory declares, without opening it: for ``penstock check`` and ``penstock backup``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from penstock.storage.checking import Damage, Report, check
from penstock.storage.store import code_path

_KIND = re.compile(r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(STREAM|RELATION|VIEW)\b", re.IGNORECASE)


@dataclass
class Contents:
    """Names of what there is, each in the order in which it came; functions with their versions."""

    streams: list[str] = field(default_factory=list)
    relations: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)


def surveyed(path: str | Path) -> tuple[Report, Contents]:
    """Verify a directory, and say what it declares; StorageError if it is no database, or of another format."""
    report = check(path)
    contents = _contents(report)
    if report.state or not report.damage:  # else it is not known which functions there are
        for name in contents.functions:
            file = code_path(name)
            if file not in report.code and not any(d.file == file for d in report.damage):
                report.damage.append(Damage(file, f"missing, the code of the function `{name.rpartition('@')[0]}`"))
    return report, contents


def _contents(report: Report) -> Contents:
    found = Contents()
    declared: dict[str, str] = {}
    queries: dict[str, None] = {}
    functions: dict[str, None] = {}
    database = report.state.get("database", {})
    queries.update(dict.fromkeys(database.get("order", ())))
    functions.update(dict.fromkeys(database.get("known", ())))
    after = chain.from_iterable((r["into"], r) if "into" in r else (r,) for r in report.records)
    records: Iterable[dict[str, Any]] = [*database.get("declared", ()), *after]
    for record in records:
        match record.get("kind"):
            case "declare":
                declared.pop(record["name"], None)
                declared[record["name"]] = record["text"]
            case "drop":
                declared.pop(record["name"], None)
            case "function":
                functions[f"{record['name']}@{record['version']}"] = None
            case "query":
                queries[record["name"]] = None
            case "stop":
                queries.pop(record["name"], None)
    kinds = {"stream": found.streams, "relation": found.relations, "view": found.views}
    for name, text in declared.items():
        match = _KIND.match(text)
        if match is not None:
            kinds[match[1].lower()].append(name)
    found.queries, found.functions = list(queries), list(functions)
    return found
