"""``penstock check`` and ``penstock backup``: directories that databases are kept in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failures import FAILED, Failure
from penstock.hosts.durable.contents import Contents, surveyed
from penstock.model.amounts import shown
from penstock.model.names import counted
from penstock.storage import backup as copying
from penstock.storage.checking import Report
from penstock.storage.shards import SHARDS
from penstock.storage.store import KINDS

_NAMES = 8
"""At most so many names of streams, relations or queries are printed."""


def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a database.")],
) -> None:
    """Verify every checksum of a database's directory, and print what is there and what is damaged.

    Nothing is changed; another process may have the directory open. Exit codes: 0 sound, 1 damaged, 2 not a database.
    """
    report, contents = surveyed(directory)
    _print(report, contents)
    if report.damage:
        for damage in report.damage:
            print(f"damaged    {damage}")
        raise Failure(
            f"{directory}: {counted(len(report.damage), 'file')} {'is' if len(report.damage) == 1 else 'are'} damaged; "
            "restore the directory from a backup",
            FAILED,
        )
    print("sound")


def _print(report: Report, contents: Contents) -> None:
    lines = [
        ("format", str(report.format)),
        ("epoch", f"{report.epoch}, open in {report.open_in}" if report.open_in else f"{report.epoch}, not open"),
        ("streams", _listed(contents.streams)),
        ("relations", _listed(contents.relations)),
        ("queries", _listed(contents.queries)),
        (
            "entries",
            f"{report.entries:,}, of which {report.behind:,} since the saved state; the last is {report.last:,}",
        ),
        ("bytes", _bytes(report)),
        ("saved", _age(report)),
    ]
    for name, value in lines:
        print(f"{name:10} {value}")
    for remark in report.remarks:
        print(f"note       {remark}")


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{len(names)}{': ' if names else ''}{', '.join(names[:_NAMES])}{more}"


def _bytes(report: Report) -> str:
    parts = report.bytes
    logs = sum(parts[kind] for kind in KINDS)
    shards = f", shards {shown(parts[SHARDS])}" if parts[SHARDS] else ""
    return f"{shown(sum(parts.values()))}: logs {shown(logs)}, state {shown(parts['state'])}{shards}"


def _age(report: Report) -> str:
    if report.saved_at is None:
        return "no state yet"
    seconds = max(0, int(time.time() - report.saved_at))
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return f"{counted(seconds // length, unit)} ago, with entry {report.saved:,}"
    return f"{counted(seconds, 'second')} ago, with entry {report.saved:,}"


def backup(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a database.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="An empty directory, or one that is not there yet.")],
) -> None:
    """Copy a database's directory consistently, also while another process has it open.

    Everything that was acknowledged before is in the copy, which is verified. It opens like any other directory.
    """
    last = copying.backup(directory, target)
    report, contents = surveyed(target)
    if report.damage:
        for damage in report.damage:
            print(f"damaged    {damage}")
        raise Failure(f"{target}: the copy is damaged: see what `penstock check {directory}` says", FAILED)
    total = shown(sum(report.bytes.values()))
    queries = counted(len(contents.queries), "query", "queries")
    print(
        f"{target}: {counted(len(contents.streams), 'stream')}, {queries}, all up to entry {last:,}, {total}; verified"
    )
