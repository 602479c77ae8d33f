"""The record of a function, and the checks that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.functions.coerce import coerce
from penstock.model.errors import BindError
from penstock.model.types import DataType, Kind
from penstock.scalar.expr import Call, Expr, Literal

Resolver = Callable[[str, Sequence[Expr]], Expr]


@dataclass(frozen=True)
class Function:
    """A function that users can call, for help, completion and the documentation."""

    name: str
    signature: str
    doc: str
    aliases: tuple[str, ...] = ()
    group: str = ""
    resolve: Resolver | None = field(default=None, compare=False, repr=False)


def entry(signature: str, doc: str, resolve: Resolver, *aliases: str) -> Function:
    """A row of a table of functions; its name is the one in the signature."""
    return Function(signature.partition("(")[0], signature, doc, aliases, resolve=resolve)


def check_arity(name: str, count: int, low: int, high: int | None) -> None:
    """``high`` None: as many as one likes."""
    if count < low or (high is not None and count > high):
        if high is None:
            takes, last = f"at least {low}", low
        elif low == high:
            takes, last = str(low), low
        else:
            takes, last = f"{low} {'or' if high == low + 1 else 'to'} {high}", high
        raise BindError(f"function `{name}` takes {takes} argument{'' if last == 1 else 's'}, got {count}")


def wrong_type(name: str, position: int, count: int, wanted: str, got: DataType) -> BindError:
    article = "an" if wanted[0] in "AEIOU" else "a"
    place = f" as argument {position + 1}" if count > 1 else ""
    castable = got.kind is Kind.STRING and wanted in Kind.__members__ and wanted != Kind.ARRAY.name
    hint = f"write CAST(… AS {wanted})" if castable else None
    return BindError(f"`{name}` takes {article} {wanted}{place}, got {got}", hint=hint)


def argument(name: str, args: Sequence[Expr], position: int, dtype: DataType) -> Expr:
    """One argument as the type the function wants."""
    found = coerce(args[position], dtype)
    if found is None:
        raise wrong_type(name, position, len(args), str(dtype), args[position].type)
    return found


def number(name: str, args: Sequence[Expr], position: int, default: DataType) -> Expr:
    """One argument of any numeric type; NULL gets the default type."""
    arg = args[position]
    if arg.type.kind is Kind.NULL:
        return argument(name, args, position, default)
    if not arg.type.is_numeric:
        raise wrong_type(name, position, len(args), "number", arg.type)
    return arg


def constant_text(name: str, args: Sequence[Expr], position: int, what: str) -> str:
    """An argument that must be written as a text in the query."""
    arg = args[position]
    if not isinstance(arg, Literal) or not isinstance(arg.value, str):
        raise BindError(f"`{name}` takes {what} as a constant text as argument {position + 1}")
    return arg.value


def typed(call: str, params: Sequence[DataType], result: DataType, optional: int = 0) -> Resolver:
    """A function with one list of parameter types, the last ``optional`` of which may be absent."""

    def resolve(name: str, args: Sequence[Expr]) -> Expr:
        check_arity(name, len(args), len(params) - optional, len(params))
        bound = tuple(argument(name, args, i, params[i]) for i in range(len(args)))
        return Call(call, bound, result)

    return resolve
