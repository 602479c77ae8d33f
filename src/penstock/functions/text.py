"""Functions on STRING, BINARY and ARRAY."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.functions.coerce import convert, unify
from penstock.functions.operators import as_text
from penstock.functions.signature import Function, Resolver, argument, check_arity, entry, typed, wrong_type
from penstock.model.errors import BindError
from penstock.model.types import BIGINT, BINARY, BOOLEAN, NULL, STRING, DataType, Kind, array
from penstock.scalar.expr import Call, Cast, Expr, Literal
from penstock.scalar.regexps import RegexpError, check_group, compiled, replacement


def _concat(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, None)
    return Call("||", tuple(as_text(name, args, i) for i in range(len(args))), STRING)


def _concat_ws(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, None)
    separator = argument(name, args, 0, STRING)
    rest = (as_text(name, args, i) for i in range(1, len(args)))
    return Call("concat_ws", (separator, *rest), STRING)


def _position(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    search, text = (argument(name, args, i, STRING) for i in range(2))
    return Call("strpos", (text, search), BIGINT)


def _regexp(call: str, params: Sequence[DataType], result: DataType) -> Resolver:
    """A pattern that stands in the query is checked at once."""
    plain = typed(call, params, result)

    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        if name == "regexp_extract" and len(args) == 2:
            args = (*args, Literal(1, BIGINT))
        bound = plain(name, args)
        assert isinstance(bound, Call)
        values = [a.value if isinstance(a, Literal) else None for a in bound.args]
        match values:
            case [_, str() as pattern, *rest]:
                try:
                    compiled(pattern)
                except RegexpError as e:
                    raise BindError(f"'{pattern}' is not a regular expression: {e}") from None
                try:
                    match rest:
                        case [str() as new]:
                            replacement(pattern, new)
                        case [int() as group]:
                            check_group(pattern, group)
                except RegexpError as e:
                    raise BindError(f"`{name}`: {e}") from None
        return bound

    return resolve


def _trim(call: str, side: str) -> Resolver:
    """Without blanks; with characters only where the text says which argument they are."""

    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        if name != "btrim" and len(args) == 2:
            raise BindError(
                f"`{name}` with two arguments means `{name}(characters, text)` in Spark and `{name}(text, characters)`"
                " in PostgreSQL and DuckDB",
                hint=f"write TRIM({side} characters FROM text)",
            )
        check_arity(name, len(args), 1, 2 if name == "btrim" else 1)
        return Call(call, tuple(argument(name, args, i, STRING) for i in range(len(args))), STRING)

    return resolve


def _bytes(name: str, args: Sequence[Expr], position: int = 0) -> Expr:
    """A BINARY, or the UTF-8 bytes of a STRING."""
    arg = args[position]
    if arg.type.kind not in (Kind.STRING, Kind.BINARY, Kind.NULL):
        raise wrong_type(name, position, len(args), "STRING or BINARY", arg.type)
    return convert(arg, BINARY)


def _of_bytes(call: str, result: DataType) -> Resolver:
    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), 1, 1)
        return Call(call, (_bytes(name, args),), result)

    return resolve


def _hex(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    arg = convert(args[0], BIGINT) if args[0].type.is_integer else _bytes(name, args)
    return Call("hex", (arg,), STRING)


def _encode(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    return convert(argument(name, args, 0, STRING), BINARY)


def _decode(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    return Cast(argument(name, args, 0, BINARY), STRING)


def _array(name: str, args: Sequence[Expr]) -> Expr:
    if args[0].type.kind is Kind.NULL:
        return convert(args[0], array(NULL))
    if args[0].type.kind is not Kind.ARRAY:
        raise wrong_type(name, 0, len(args), "ARRAY", args[0].type)
    return args[0]


def _cardinality(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 1, 1)
    return Call("cardinality", (_array(name, args),), BIGINT)


def _element_at(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    values = _array(name, args)
    assert values.type.element is not None
    return Call("element_at", (values, argument(name, args, 1, BIGINT)), values.type.element)


def _contains(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    values = _array(name, args)
    assert values.type.element is not None
    # A stand-in of the element's type finds the type in which both are compared.
    stand_in, needle = unify((Literal(None, values.type.element), args[1]), "compare")
    return Call(name, (convert(values, array(stand_in.type)), needle), BOOLEAN)


def _array_join(name: str, args: Sequence[Expr]) -> Expr:
    check_arity(name, len(args), 2, 2)
    values = _array(name, args)
    assert values.type.element is not None
    if values.type.element.kind in (Kind.ARRAY, Kind.BINARY):
        raise wrong_type(name, 0, 2, "ARRAY of values that have a text", values.type)
    return Call("array_join", (convert(values, array(STRING)), argument(name, args, 1, STRING)), STRING)


TEXT: tuple[Function, ...] = (
    entry("lower(text STRING) -> STRING", "lower case, by Unicode's full mapping",
          typed("lower", (STRING,), STRING), "lcase"),
    entry("upper(text STRING) -> STRING", "upper case, by Unicode's full mapping (ß becomes SS)",
          typed("upper", (STRING,), STRING), "ucase"),
    entry("length(text STRING) -> BIGINT", "number of code points",
          typed("length", (STRING,), BIGINT), "len", "char_length", "character_length"),
    entry("octet_length(x STRING|BINARY) -> BIGINT", "number of bytes, of a text in UTF-8",
          _of_bytes("octet_length", BIGINT)),
    entry("trim(text STRING) -> STRING",
          "without blanks at both ends; TRIM(BOTH|LEADING|TRAILING c FROM text) without the characters of c",
          _trim("trim", "BOTH")),
    entry("btrim(text STRING[, characters STRING]) -> STRING",
          "without blanks, or the given characters, at both ends", _trim("trim", "BOTH")),
    entry("ltrim(text STRING) -> STRING", "without blanks at the beginning", _trim("ltrim", "LEADING")),
    entry("rtrim(text STRING) -> STRING", "without blanks at the end", _trim("rtrim", "TRAILING")),
    entry("substr(text STRING, start BIGINT[, length BIGINT]) -> STRING",
          "from the start-th code point; 0 is the first too, a negative start counts from the end; '' for length < 0",
          typed("substr", (STRING, BIGINT, BIGINT), STRING, 1), "substring"),
    entry("replace(text STRING, search STRING, new STRING) -> STRING",
          "every occurrence replaced; '' occurs nowhere", typed("replace", (STRING, STRING, STRING), STRING)),
    entry("concat(a, b, …) -> STRING", "all joined, as with ||; NULL where one is NULL", _concat),
    entry("concat_ws(separator STRING, a, …) -> STRING",
          "all that are not NULL, with the separator between; NULL where the separator is", _concat_ws),
    entry("left(text STRING, n BIGINT) -> STRING", "the first n; '' for n <= 0",
          typed("left", (STRING, BIGINT), STRING)),
    entry("right(text STRING, n BIGINT) -> STRING", "the last n; '' for n <= 0",
          typed("right", (STRING, BIGINT), STRING)),
    entry("lpad(text STRING, n BIGINT[, fill STRING]) -> STRING",
          "exactly n long: cut at the end, or filled at the beginning (with blanks)",
          typed("lpad", (STRING, BIGINT, STRING), STRING, 1)),
    entry("rpad(text STRING, n BIGINT[, fill STRING]) -> STRING",
          "exactly n long: cut or filled at the end (with blanks)",
          typed("rpad", (STRING, BIGINT, STRING), STRING, 1)),
    entry("reverse(text STRING) -> STRING", "the code points backwards", typed("reverse", (STRING,), STRING)),
    entry("repeat(text STRING, n BIGINT) -> STRING", "n times; '' for n <= 0",
          typed("repeat", (STRING, BIGINT), STRING)),
    entry("strpos(text STRING, search STRING) -> BIGINT", "where search first occurs, from 1; 0: nowhere",
          typed("strpos", (STRING, STRING), BIGINT), "instr"),
    entry("position(search STRING, text STRING) -> BIGINT", "strpos with its arguments exchanged",
          _position, "locate"),
    entry("starts_with(text STRING, start STRING) -> BOOLEAN", "whether text begins with start",
          typed("starts_with", (STRING, STRING), BOOLEAN), "startswith"),
    entry("ends_with(text STRING, end STRING) -> BOOLEAN", "whether text ends with end",
          typed("ends_with", (STRING, STRING), BOOLEAN), "endswith", "suffix"),
    entry("contains(text STRING, search STRING) -> BOOLEAN", "whether search occurs in text",
          typed("contains", (STRING, STRING), BOOLEAN)),
    entry("split_part(text STRING, separator STRING, n BIGINT) -> STRING",
          "the n-th part, from the end where negative; '' where there is none; n = 0 fails",
          typed("split_part", (STRING, STRING, BIGINT), STRING)),
    entry("regexp_like(text STRING, pattern STRING) -> BOOLEAN", "whether the pattern matches somewhere",
          _regexp("regexp_like", (STRING, STRING), BOOLEAN), "regexp_matches", "regexp", "rlike"),
    entry("regexp_replace(text STRING, pattern STRING, new STRING) -> STRING",
          r"every match replaced; $1 or ${name} in new is a group, \$ the character",
          _regexp("regexp_replace", (STRING, STRING, STRING), STRING)),
    entry("regexp_extract(text STRING, pattern STRING[, group BIGINT]) -> STRING",
          "a group of the first match: 1 unless told, 0 is all of it; '' without a match; no such group fails",
          _regexp("regexp_extract", (STRING, STRING, BIGINT), STRING)),
    entry("ascii(text STRING) -> BIGINT", "the first code point; 0 for ''",
          typed("ascii", (STRING,), BIGINT)),
    entry("unicode(text STRING) -> BIGINT", "the first code point; -1 for ''",
          typed("unicode", (STRING,), BIGINT), "ord"),
    entry("chr(code BIGINT) -> STRING", "the one of 256 characters that the last byte says; '' for code < 0",
          typed("chr", (BIGINT,), STRING), "char"),
    entry("hex(x BIGINT|STRING|BINARY) -> STRING", "hexadecimal digits in upper case", _hex, "to_hex"),
    entry("unhex(text STRING) -> BINARY",
          "the bytes; odd digits have a leading 0, and what is not hexadecimal fails",
          typed("unhex", (STRING,), BINARY), "from_hex"),
    entry("md5(x STRING|BINARY) -> STRING", "hexadecimal MD5 digest", _of_bytes("md5", STRING)),
    entry("sha256(x STRING|BINARY) -> STRING", "hexadecimal SHA-256 digest", _of_bytes("sha256", STRING)),
    entry("encode(text STRING) -> BINARY", "the bytes in UTF-8", _encode),
    entry("decode(data BINARY) -> STRING", "the text of UTF-8 bytes; other bytes fail", _decode),
)  # fmt: skip

ARRAYS: tuple[Function, ...] = (
    entry("cardinality(values ARRAY) -> BIGINT", "number of elements",
          _cardinality, "array_length", "array_size", "size"),
    entry("element_at(values ARRAY, n BIGINT) -> element",
          "the n-th from 1, from the end where negative; NULL where there is none", _element_at),
    entry("array_contains(values ARRAY, x) -> BOOLEAN", "x IN (the elements)", _contains),
    entry("list_contains(values ARRAY, x) -> BOOLEAN", "whether an element equals x; elements that are NULL do not",
          _contains),
    entry("array_join(values ARRAY, separator STRING) -> STRING",
          "the elements as texts with the separator between; NULLs are left out",
          _array_join, "array_to_string"),
)  # fmt: skip
