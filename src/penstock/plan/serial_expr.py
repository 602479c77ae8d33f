"""JSON form of types, literals and expressions; the reading half says where something is wrong."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from penstock.model.errors import PlanError, suggest
from penstock.model.schema import Field, Schema
from penstock.model.types import BOOLEAN, DataType, Kind, array
from penstock.plan.meanings import GONE
from penstock.scalar import BUILTINS
from penstock.scalar.context import RowError
from penstock.scalar.dates import ZONED
from penstock.scalar.expr import Call, Case, Cast, Column, Expr, Literal, UserCall, WindowBound
from penstock.scalar.zones import UTC, zone_name

Json = dict[str, Any]
T = TypeVar("T")

_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_UNARY = ("not", "is_null", "neg")
_BINARY = ("and", "or", "=", "<>", "<", "<=", ">", ">=", "is_not_distinct", "+", "-", "*", "/", "div", "%")
_ARGUMENTS = dict.fromkeys(_UNARY, 1) | dict.fromkeys(_BINARY, 2)
_LIMITS = {Kind.INT: 1 << 31}
_SCALARS = {kind.value: DataType(kind) for kind in Kind if kind not in (Kind.DECIMAL, Kind.ARRAY)}


def literal_to_json(value: object, dtype: DataType) -> object:
    """A value such that reading it back with its type gives it exactly."""
    if value is None:
        return None
    if dtype.kind is Kind.ARRAY:
        assert dtype.element is not None
        assert isinstance(value, tuple)
        return [literal_to_json(v, dtype.element) for v in value]
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float):
        if value != value:
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
    return value


def expr_to_json(expr: Expr) -> Json:
    """An expression as an object whose ``expr`` says what it is."""
    dtype = str(expr.type)
    match expr:
        case Column(index, _, name):
            return {"expr": "Column", "index": index, "type": dtype, "name": name}
        case Literal(value, _):
            return {"expr": "Literal", "value": literal_to_json(value, expr.type), "type": dtype}
        case Call(function, args, _) | UserCall(function, args, _):
            kind = type(expr).__name__
            return {
                "expr": kind,
                "function": function,
                "args": [expr_to_json(a) for a in args],
                "type": dtype,
            }
        case Case(branches, otherwise, _):
            pairs = [{"when": expr_to_json(c), "then": expr_to_json(r)} for c, r in branches]
            return {"expr": "Case", "branches": pairs, "otherwise": expr_to_json(otherwise), "type": dtype}
        case Cast(arg, _, safe, zone):
            made = {"expr": "Cast", "arg": expr_to_json(arg), "type": dtype, "safe": safe}
            return made if zone == UTC else {**made, "zone": zone}
        case WindowBound(which, _):
            return {"expr": "WindowBound", "which": which, "type": dtype}


class Reader:
    """One JSON object of a plan: takes its fields one by one and reports what is missing or left over."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise PlanError(f"{path}: an object is expected, not {_shown(value)}")
        self.path = path
        self._fields = dict(value)
        self._known: list[str] = []

    def take(self, name: str, default: object = ...) -> object:
        """The field's value; without a default it has to be there."""
        self._known.append(name)
        if name in self._fields:
            return self._fields.pop(name)
        if default is ...:
            raise PlanError(f"{self.path}: field `{name}` is missing")
        return default

    def at(self, name: str) -> str:
        return f"{self.path}.{name}"

    def text(self, name: str, default: object = ...) -> str:
        return expect(self.take(name, default), str, self.at(name), "a string")

    def flag(self, name: str, default: object = ...) -> bool:
        return expect(self.take(name, default), bool, self.at(name), "true or false")

    def integer(self, name: str, default: object = ..., *, least: int | None = None) -> int:
        value = expect(self.take(name, default), int, self.at(name), "a whole number")
        if least is not None and value < least:
            raise PlanError(f"{self.at(name)}: {value} is too small; it has to be at least {least}")
        return value

    def one_of(self, name: str, choices: tuple[str, ...], default: object = ...) -> Any:
        value = self.text(name, default)
        if value not in choices:
            known = ", ".join(f"`{c}`" for c in choices)
            raise PlanError(f"{self.at(name)}: `{value}` is not one of {known}")
        return value

    def items(self, name: str, read: Callable[[object, str], T], default: object = ...) -> tuple[T, ...]:
        values = expect(self.take(name, default), list, self.at(name), "a list")
        return tuple(read(v, f"{self.at(name)}[{i}]") for i, v in enumerate(values))

    def done(self) -> None:
        """Nothing may be left over."""
        for name in self._fields:
            hint = suggest(str(name), self._known)
            raise PlanError(f"{self.path}: unknown field `{name}`", hint=hint)


def expect(value: object, kind: type[T], path: str, what: str) -> T:
    """The value if it is of this Python type; a bool is no number here."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise PlanError(f"{path}: {what} is expected, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else "null" if value is None else repr(value)


def type_from_json(value: object, path: str) -> DataType:
    """A type from its name: ``BIGINT``, ``DECIMAL(10, 2)``, ``ARRAY<STRING>``."""
    text = expect(value, str, path, "the name of a type").strip()
    if text in _SCALARS:
        return _SCALARS[text]
    if found := re.fullmatch(r"ARRAY<(.*)>", text):
        return array(type_from_json(found[1], path))
    if found := re.fullmatch(r"DECIMAL\(\s*(\d+)\s*,\s*(\d+)\s*\)", text):
        precision, scale = int(found[1]), int(found[2])
        if not 1 <= precision <= 38 or scale > precision:
            raise PlanError(f"{path}: {text} is not a DECIMAL of 1 to 38 digits with its scale among them")
        return DataType(Kind.DECIMAL, precision, scale)
    hint = suggest(text, [*_SCALARS, "DECIMAL(18, 2)", "ARRAY<INT>"])
    raise PlanError(f"{path}: unknown type `{text}`", hint=hint)


def literal_from_json(value: object, dtype: DataType, path: str) -> object:
    """The plain Python value that stands for a literal of this type."""
    if value is None:
        return None
    wrong = PlanError(f"{path}: {_shown(value)} is not a literal of type {dtype}")
    match dtype.kind:
        case Kind.NULL:
            raise wrong
        case Kind.BOOLEAN:
            good = isinstance(value, bool)
        case Kind.STRING:
            good = isinstance(value, str)
        case Kind.REAL | Kind.DOUBLE:
            if isinstance(value, str) and value in _NOT_FINITE:
                return _NOT_FINITE[value]
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise wrong
            return float(value)
        case Kind.DECIMAL:
            try:
                return Decimal(expect(value, str, path, f"a string with a literal of type {dtype}"))
            except InvalidOperation:
                raise wrong from None
        case Kind.BINARY:
            try:
                return base64.b64decode(expect(value, str, path, "base64 text"), validate=True)
            except (binascii.Error, ValueError):
                raise wrong from None
        case Kind.ARRAY:
            assert dtype.element is not None
            items = expect(value, list, path, f"a list with a literal of type {dtype}")
            return tuple(literal_from_json(v, dtype.element, f"{path}[{i}]") for i, v in enumerate(items))
        case _:
            limit = _LIMITS.get(dtype.kind, 1 << 63)
            good = isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
    if not good:
        raise wrong
    return value


def expr_from_json(value: object, path: str, schema: Schema) -> Expr:
    """An expression over rows of the schema; every column must be there with the type it says."""
    obj = Reader(value, path)
    kinds = ("Column", "Literal", "Call", "UserCall", "Case", "Cast", "WindowBound")
    kind = obj.one_of("expr", kinds)
    dtype = type_from_json(obj.take("type"), obj.at("type"))

    def argument(item: object, where: str) -> Expr:
        return expr_from_json(item, where, schema)

    result: Expr
    match kind:
        case "Column":
            result = Column(obj.integer("index"), dtype, obj.text("name", ""))
            _check_column(result, schema, path)
        case "Literal":
            result = Literal(literal_from_json(obj.take("value"), dtype, obj.at("value")), dtype)
        case "Call":
            result = Call(obj.text("function"), obj.items("args", argument), dtype)
            _check_call(result, path)
        case "UserCall":
            result = UserCall(obj.text("function"), obj.items("args", argument), dtype)
        case "Case":
            branches = obj.items("branches", lambda item, where: _branch(item, where, schema))
            if not branches:
                raise PlanError(f"{obj.at('branches')}: CASE needs at least one branch")
            result = Case(branches, argument(obj.take("otherwise"), obj.at("otherwise")), dtype)
        case "Cast":
            zone = _zone(obj.text("zone", UTC), obj.at("zone"))
            result = Cast(argument(obj.take("arg"), obj.at("arg")), dtype, obj.flag("safe", False), zone)
        case _:
            result = WindowBound(obj.one_of("which", ("start", "end")), dtype)
    obj.done()
    return result


def _branch(item: object, path: str, schema: Schema) -> tuple[Expr, Expr]:
    obj = Reader(item, path)
    condition = condition_from_json(obj.take("when"), obj.at("when"), schema)
    result = expr_from_json(obj.take("then"), obj.at("then"), schema)
    obj.done()
    return condition, result


def _check_column(column: Column, schema: Schema, path: str) -> None:
    if not 0 <= column.index < len(schema):
        raise PlanError(f"{path}: column {column.index} of {len(schema)}; they count from 0")
    field: Field = schema[column.index]
    if field.type != column.type:
        what = f"column {column.index} (`{field.name}`) has type {field.type}, not {column.type}"
        raise PlanError(f"{path}: {what}")


def _check_call(call: Call, path: str) -> None:
    if call.function not in BUILTINS and call.function not in GONE:
        hint = suggest(call.function, BUILTINS)
        raise PlanError(f"{path}.function: unknown function `{call.function}`", hint=hint)
    count = _ARGUMENTS.get(call.function, len(call.args))
    if len(call.args) != count:
        raise PlanError(f"{path}.args: `{call.function}` takes {count}, not {len(call.args)} arguments")
    if len(call.args) > ZONED.get(call.function, len(call.args)):
        last = call.args[-1]
        _zone(last.value if isinstance(last, Literal) else None, f"{path}.args[{len(call.args) - 1}]")


def _zone(value: object, path: str) -> str:
    try:
        name = zone_name(expect(value, str, path, "the name of a time zone"))
    except RowError as error:
        raise PlanError(f"{path}: {error}") from None
    return name


def condition_from_json(value: object, path: str, schema: Schema) -> Expr:
    """An expression that is TRUE, FALSE or NULL."""
    expr = expr_from_json(value, path, schema)
    if expr.type not in (BOOLEAN, DataType(Kind.NULL)):
        raise PlanError(f"{path}: a condition has type BOOLEAN, not {expr.type}")
    return expr
