"""What earlier runs with a database have read of their inputs, so that a later run goes on at the right row.

Rows are counted from the beginning of the first file. So what has been read must still be there as it was: the same
files, each with the same content; only the last may have grown, and new ones may come after it. Noted are, for each
file, its name, size, and a digest of its first and last few kilobytes: enough to tell a file that was replaced.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.io.files import input_files, on_disk
from penstock.model.errors import InputError

if TYPE_CHECKING:
    from penstock.database.database import Database

_ENDS = 4_096
"""Bytes at the beginning and at the end that are looked at."""
_Entry = list[str | int]


def check_files(db: Database, inputs: Mapping[str, Path], done: Mapping[str, int]) -> None:
    """Refuse inputs of which rows have been read before and are not there as they were; note what is there now."""
    noted: dict[str, list[_Entry]] = db.note().get("files", {})
    found: dict[str, list[_Entry]] = {}
    for name, path in inputs.items():
        relation = name in db.catalog.relations
        if not relation and db.stream(name).progress == math.inf:
            continue
        files = [on_disk(file) for file in input_files(path)[1]]
        if done.get(name) and name in noted:
            if relation:
                _check_relation(name, path, files, noted[name])
            else:
                _check_stream(name, path, files, noted[name])
        found[name] = [_entry(file) for file in files]
    if found != {name: noted.get(name) for name in found}:
        db.note(files=noted | found)


def unsee(db: Database, names: Iterable[str]) -> None:
    """Note nothing of inputs that have stopped at a row: their files will be mended, and are read on from that row."""
    noted: dict[str, list[_Entry]] = db.note().get("files", {})
    left = {name: entries for name, entries in noted.items() if name not in names}
    if left != noted:
        db.note(files=left)


def _check_stream(name: str, path: Path, files: list[Path], noted: list[_Entry]) -> None:
    for i, entry in enumerate(noted):
        file = files[i] if i < len(files) else None
        if file is None or file.name != entry[0]:
            if file is None or str(entry[0]) not in {other.name for other in files}:
                raise _refused(name, f"of {entry[0]} in {path}, which is not there any more")
            raise _refused(name, f"of {entry[0]}, and {file} has come since, with a name before it")
        last = i == len(noted) - 1
        if _entry(file, int(entry[1])) != entry or (not last and file.stat().st_size != entry[1]):
            grown = "" if last else f" ({noted[-1][0]} after it has been read too, so it may not grow any more)"
            raise _refused(name, f"of {file}, which is not as it was{grown}")


def _refused(name: str, what: str) -> InputError:
    return InputError(
        f"stream `{name}`: an earlier run has read rows {what}; so it is not known where to go on",
        hint="new rows belong at the end of the last file, or in files whose names come after it; "
        "for other data use another --database",
    )


def _check_relation(name: str, path: Path, files: list[Path], noted: list[_Entry]) -> None:
    if [_entry(file) for file in files] != noted:
        raise InputError(
            f"relation `{name}`: an earlier run has read {path}, which has changed since; relations are read only once",
            hint=f"leave out --input {name}=… to go on with its rows as they are, "
            "or use another --database to begin anew",
        )


def _entry(file: Path, size: int | None = None) -> _Entry:
    """What is noted of a file, or of its first ``size`` bytes."""
    size = file.stat().st_size if size is None else size
    with file.open("rb") as source:
        digest = hashlib.sha256(source.read(min(size, _ENDS)))
        source.seek(max(0, size - _ENDS))
        digest.update(source.read(min(size, _ENDS)))
        end = source.tell()
    return [file.name, min(size, end), digest.hexdigest()[:16]]
