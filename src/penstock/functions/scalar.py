"""All scalar functions, and ``resolve``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.functions.numeric import CHOICE, NUMBERS
from penstock.functions.operators import OPERATORS
from penstock.functions.signature import Function, Resolver
from penstock.functions.temporal import TIME
from penstock.functions.text import ARRAYS, TEXT
from penstock.functions.zones import in_zone
from penstock.model.errors import BindError
from penstock.scalar.expr import Expr
from penstock.scalar.zones import UTC

_GROUPS = {"numbers": NUMBERS, "choice": CHOICE, "text": TEXT, "time": TIME, "arrays": ARRAYS}

SCALARS: dict[str, Function] = {f.name: replace(f, group=g) for g, table in _GROUPS.items() for f in table}

_RESOLVERS: dict[str, Resolver] = {
    **OPERATORS,
    **{n: f.resolve for f in SCALARS.values() for n in (f.name, *f.aliases) if f.resolve is not None},
}


def is_scalar(name: str) -> bool:
    """Whether the name, in lower case, is that of a scalar function or operator."""
    return name in _RESOLVERS


# Names that mean something here that is not there, and what comes close.
ELSEWHERE: dict[str, str] = {
    "quantile": "DuckDB's gives one of the values; write percentile(x, fraction), which interpolates between two",
    "list": "DuckDB's keeps NULLs; write collect_list(x), which leaves them out",
}


def names() -> list[str]:
    """Every name a scalar function can be called by, aliases too."""
    return sorted(n for f in SCALARS.values() for n in (f.name, *f.aliases))


def resolve(name: str, args: Sequence[Expr], zone: str = UTC) -> Expr:
    """The typed call of a function or operator, by clocks of the zone; ``name`` in lower case."""
    found = _RESOLVERS.get(name)
    if found is None:
        raise BindError(f"no function `{name}`")
    return in_zone(found(name, args), zone, args)
