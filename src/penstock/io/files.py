"""Which files a path stands for, and what format each is in: the suffix decides."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from penstock.errors import InputError


class Format(Enum):
    """What a data file can be. The value is its name on the command line."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"


_SUFFIXES = {
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
KNOWN_SUFFIXES = ".csv, .tsv, .json, .jsonl, .ndjson, .parquet or .arrow (texts also with .gz, .zst, .bz2)"


def compression_of(path: Path) -> str | None:
    """The compression that a text file's last suffix names."""
    return _COMPRESSIONS.get(path.suffix.lower())


def data_suffix(path: Path) -> str:
    """The suffix that names the format, below that of a compression."""
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()


def format_of(path: Path) -> Format | None:
    """The format that the name of a file promises, or None where it promises none."""
    found = _SUFFIXES.get(data_suffix(path))
    if compression_of(path) and found not in (Format.CSV, Format.JSON):
        return None
    return found


def input_files(path: Path) -> tuple[Format, list[Path]]:
    """The file, or the files of the folder in order of their names; hidden ones and ``_markers`` excepted."""
    if not path.exists():
        raise InputError(f"there is no file or folder {path}")
    if not path.is_dir():
        return _known(path), [path]
    entries = sorted(p for p in path.iterdir() if not p.name.startswith((".", "_")))
    nested = [p for p in entries if p.is_dir()]
    if nested:
        raise InputError(
            f"the folder {path} has a folder in it, {nested[0].name}", hint="put the files side by side"
        )
    if not entries:
        raise InputError(f"the folder {path} has no files in it")
    formats = {_known(p): p for p in reversed(entries)}
    if len(formats) > 1:
        names = " and ".join(sorted(p.name for p in formats.values()))
        raise InputError(
            f"the folder {path} mixes formats: {names}", hint="one folder holds files of one format"
        )
    return next(iter(formats)), entries


def _known(path: Path) -> Format:
    found = format_of(path)
    if found is None:
        raise InputError(f"{path} is in no format that its name tells", hint=f"names end in {KNOWN_SUFFIXES}")
    return found
