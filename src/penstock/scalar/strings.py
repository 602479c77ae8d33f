"""Functions on STRING, BINARY and ARRAY. Positions and lengths count code points, from 1."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache

from penstock.scalar import regexps
from penstock.scalar.context import RowError
from penstock.scalar.order import compare

# A result beyond this fails on its row rather than taking the memory of the process.
MAX_LENGTH = 1 << 24


def _checked(length: int) -> int:
    if length > MAX_LENGTH:
        raise RowError(f"the result would have {length} characters, more than {MAX_LENGTH}")
    return length


def concat(*parts: str) -> str:
    _checked(sum(len(p) for p in parts))
    return "".join(parts)


def concat_ws(separator: str | None, *parts: str | None) -> str | None:
    """NULL parts are left out, with their separator; a NULL separator gives NULL."""
    if separator is None:
        return None
    kept = [p for p in parts if p is not None]
    _checked(sum(len(p) for p in kept) + len(separator) * max(0, len(kept) - 1))
    return separator.join(kept)


def substr(text: str, start: int, length: int | None = None) -> str:
    """From the start-th character; a negative start counts from the end, and 0 is the first.

    What lies before the first character counts toward the length: ``substr('abc', -4, 2)`` is ``a``.
    """
    begin = max(0, start - 1) if start >= 0 else len(text) + start
    end = len(text) if length is None else begin + length
    return text[max(0, begin) : max(0, end)] if end > begin else ""


def left(text: str, count: int) -> str:
    return text[: max(0, count)]


def right(text: str, count: int) -> str:
    return text[max(0, len(text) - max(0, count)) :]


def _padding(text: str, length: int, fill: str) -> str:
    missing = _checked(length) - len(text)
    return (fill * (missing // len(fill) + 1))[:missing] if missing > 0 and fill else ""


def lpad(text: str, length: int, fill: str = " ") -> str:
    return _padding(text, length, fill) + text[: max(0, length)]


def rpad(text: str, length: int, fill: str = " ") -> str:
    return text[: max(0, length)] + _padding(text, length, fill)


def trim(text: str, characters: str = " ") -> str:
    return text.strip(characters)


def ltrim(text: str, characters: str = " ") -> str:
    return text.lstrip(characters)


def rtrim(text: str, characters: str = " ") -> str:
    return text.rstrip(characters)


def repeat(text: str, count: int) -> str:
    _checked(len(text) * max(0, count))
    return text * count if text else ""


def replace(text: str, search: str, new: str) -> str:
    """Every occurrence; an empty search text occurs nowhere."""
    if not search:
        return text
    _checked(len(text) + text.count(search) * (len(new) - len(search)))
    return text.replace(search, new)


def reverse(text: str) -> str:
    return text[::-1]


def strpos(text: str, search: str) -> int:
    return text.find(search) + 1


def contains(text: str, search: str) -> bool:
    return search in text


def split_part(text: str, separator: str, number: int) -> str:
    """Parts count from 1, negative ones from the end; there is no part 0."""
    if number == 0:
        raise RowError("split_part: parts are numbered from 1")
    parts = text.split(separator) if separator else [text]
    index = number - 1 if number > 0 else len(parts) + number
    return parts[index] if 0 <= index < len(parts) else ""


def ascii_code(text: str) -> int:
    return ord(text[0]) if text else 0


def code_point(text: str) -> int:
    return ord(text[0]) if text else -1


def character(code: int) -> str:
    """Of the last byte of the number; none of a negative one."""
    return chr(code & 0xFF) if code >= 0 else ""


def to_hex(value: int | bytes) -> str:
    """Upper case; a negative number as its 64 bits."""
    return f"{value & (1 << 64) - 1:X}" if isinstance(value, int) else value.hex().upper()


def unhex(text: str) -> bytes:
    """An odd number of digits has a leading 0."""
    # fromhex alone would let blanks pass.
    if not re.fullmatch(r"[0-9A-Fa-f]*", text):
        raise RowError(f"'{text[:40]}' is not hexadecimal")
    return bytes.fromhex("0" * (len(text) % 2) + text)


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def like_parts(pattern: str, escape: str) -> list[tuple[str, bool]]:
    """The characters of a pattern of LIKE, each with whether it is a wildcard; ``escape`` may be empty."""
    if len(escape) > 1:
        raise RowError(f"the ESCAPE of LIKE is one character, not '{escape}'")
    parts: list[tuple[str, bool]] = []
    characters = iter(pattern)
    for c in characters:
        if c == escape:
            literal = next(characters, None)
            if literal is None:
                raise RowError(f"the pattern '{pattern}' ends with its escape character")
            parts.append((literal, False))
        else:
            parts.append((c, c in "%_"))
    return parts


@lru_cache(maxsize=512)
def _like_regexp(pattern: str, escape: str, ignore_case: bool) -> re.Pattern[str]:
    """Between two ``%`` the first place that fits is taken for good: another one would not help what follows."""
    fold = folded if ignore_case else str
    pieces = [""]
    for c, is_wild in like_parts(pattern, escape):
        if is_wild and c == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if is_wild else re.escape(fold(c))
    first, *middle = pieces
    last = f".*{middle.pop()}" if middle else ""
    return re.compile(first + "".join(f"(?>.*?{piece})" for piece in middle) + last, re.DOTALL)


def like(text: str, pattern: str, escape: str = "") -> bool:
    return _like_regexp(pattern, escape, False).fullmatch(text) is not None


def ilike(text: str, pattern: str, escape: str = "") -> bool:
    """LIKE on both sides without the difference of cases."""
    return _like_regexp(pattern, escape, True).fullmatch(folded(text)) is not None


def folded(text: str) -> str:
    """The text by Unicode's simple case folding: character for character, so that ``_`` is still one of them."""
    whole = text.casefold()
    return whole if len(whole) == len(text) else "".join(map(_folded, text))


def _folded(c: str) -> str:
    return next((f for f in (c.casefold(), c.lower()) if len(f) == 1), c)


def regexp_replace(text: str, pattern: str, new: str) -> str:
    result = regexps.regexp_replace(text, pattern, new)
    _checked(len(result))
    return result


def element_at(values: tuple[object, ...], index: int) -> object:
    """Counted from 1, or from the end where negative; NULL outside."""
    position = index - 1 if index > 0 else len(values) + index
    return values[position] if index and 0 <= position < len(values) else None


def array_contains(values: tuple[object, ...], needle: object) -> bool | None:
    """As ``needle IN (values)``."""
    if any(v is not None and compare(v, needle) == 0 for v in values):
        return True
    return None if any(v is None for v in values) else False


def list_contains(values: tuple[object, ...], needle: object) -> bool:
    """Without three-valued logic: a NULL among the values is no value."""
    return array_contains(values, needle) is True


def array_join(values: tuple[str | None, ...], separator: str) -> str | None:
    return concat_ws(separator, *values)


STRINGS: dict[str, Callable[..., object]] = {
    "||": concat,
    "lower": str.lower,
    "upper": str.upper,
    "length": len,
    "octet_length": len,
    "trim": trim,
    "ltrim": ltrim,
    "rtrim": rtrim,
    "substr": substr,
    "replace": replace,
    "left": left,
    "right": right,
    "lpad": lpad,
    "rpad": rpad,
    "reverse": reverse,
    "repeat": repeat,
    "strpos": strpos,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": contains,
    "split_part": split_part,
    "regexp_like": regexps.regexp_like,
    "regexp_replace": regexp_replace,
    "regexp_extract": regexps.regexp_extract,
    "ascii": ascii_code,
    "unicode": code_point,
    "chr": character,
    "hex": to_hex,
    "unhex": unhex,
    "md5": md5,
    "sha256": sha256,
    "like": like,
    "ilike": ilike,
    "cardinality": len,
    "element_at": element_at,
    "array_contains": array_contains,
    "list_contains": list_contains,
    "array_join": array_join,
}
