"""Which files a path stands for, and what format each is in: the suffix decides."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO

import pyarrow as pa

from penstock.model.errors import InputError


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
@dataclass(frozen=True)
class Piece:
    """Some whole lines of a text that comes bit by bit, which readers take in the place of a file.

    ``where``: what the text is called. ``text`` begins with the header line, if the format has one. ``skipped``: lines
    that came before and are not in it. ``whole``: nothing comes after it.
    """

    where: str
    format: Format
    text: bytes
    skipped: int = 0
    whole: bool = False

    def __str__(self) -> str:
        return self.where


Source = Path | Piece


def on_disk(source: Source) -> Path:
    """A source in a format that does not come bit by bit."""
    assert isinstance(source, Path), "a piece is of a text"
    return source


_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
KNOWN_SUFFIXES = ".csv, .tsv, .json, .jsonl, .ndjson, .parquet or .arrow (texts also with .gz, .zst, .bz2)"


def compression_of(path: Path) -> str | None:
    """The compression that a text file's last suffix names."""
    return _COMPRESSIONS.get(path.suffix.lower())


def data_suffix(path: Source) -> str:
    """The suffix that names the format, below that of a compression."""
    if isinstance(path, Piece):
        return f".{path.format.value}"
    return (path.with_suffix("") if compression_of(path) else path).suffix.lower()


def format_of(path: Path) -> Format | None:
    """The format that the name of a file promises, or None where it promises none."""
    found = _SUFFIXES.get(data_suffix(path))
    if compression_of(path) and found not in (Format.CSV, Format.JSON):
        return None
    return found


def input_files(path: Source) -> tuple[Format, Sequence[Source]]:
    """The file, or the files of the folder in order of their names; hidden ones and ``_markers`` excepted."""
    if isinstance(path, Piece):
        return path.format, [path]
    if not path.exists():
        raise InputError(f"there is no file or folder {path}")
    if not path.is_dir():
        format = _known(path)
        if not path.is_file():
            raise InputError(
                f"{path} is a pipe or a device, and is read more than once here",
                hint="save it as a file; penstock run and penstock query read streams from pipes",
            )
        return format, [path]
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


Leave = Callable[[Path], None]
"""Hears of a file whose last line has no end yet and is left for later."""


def open_text(path: Source, leave: Leave | None = None) -> IO[bytes]:
    """The bytes of a text file, unpacked; with ``leave`` without a last line that has no end yet."""
    if isinstance(path, Piece):
        return io.BytesIO(path.text)
    return io.BufferedReader(TextBytes(path, leave), _READ_BYTES)


_READ_BYTES = 1 << 16


class TextBytes(io.RawIOBase):
    """The bytes of a text file, unpacked. What cannot be read is an ``InputError``."""

    def __init__(self, path: Path, leave: Leave | None = None) -> None:
        self._path = path
        self._leave = leave
        self._lines = memoryview(b"")
        self._begun: list[bytes] = []
        """The parts of a line whose end has not come: at most the longest line of the file."""
        self._source: IO[bytes] | None = None
        try:
            self._source = pa.input_stream(str(path), compression=compression_of(path))
        except OSError as problem:
            raise self._unreadable(problem) from None

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
        super().close()

    def readinto(self, into: object) -> int:
        view = memoryview(into)  # type: ignore[arg-type]
        if self._leave is not None:
            self._fill()
            data, self._lines = self._lines[: len(view)], self._lines[len(view) :]
        else:
            data = memoryview(self._read(len(view)))
        view[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        assert self._source is not None
        try:
            return self._source.read(size)
        except OSError as problem:
            raise self._unreadable(problem) from None

    def _fill(self) -> None:
        """Whole lines, if there are more."""
        while not self._lines:
            data = self._read(_READ_BYTES)
            if not data:
                if b"".join(self._begun).strip() and self._leave is not None:
                    self._leave(self._path)
                return
            head, end, tail = data.rpartition(b"\n")
            if end:
                self._lines = memoryview(b"".join([*self._begun, head, end]))
                self._begun = []
            self._begun.append(tail)

    def _unreadable(self, problem: OSError) -> InputError:
        packed = compression_of(self._path)
        kind = f"; it should be packed with {packed}, and whole" if packed else ""
        return InputError(f"{self._path} cannot be read: {problem.strerror or str(problem).splitlines()[0]}{kind}")
