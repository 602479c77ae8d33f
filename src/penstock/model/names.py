"""Names of columns: they keep the case in which they were declared, and are found in any case.

Only columns whose names differ in nothing but case need quotes. A name as CQL knows it (``cql.expressions.identifier``)
is in lower case unless it was quoted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


class Names:
    """The names of some columns, to find columns by them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._places: dict[str, int] = {}
        self._lower: dict[str, list[int]] = {}
        for i, name in enumerate(self._names):
            if name not in self._places:
                self._places[name] = i
                self._lower.setdefault(name.lower(), []).append(i)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def find(self, name: str) -> int | None:
        """The place of the column that a name of CQL means.

        That is the first column of exactly this name, or the only one that differs in case alone.
        """
        if name in self._places:
            return self._places[name]
        same = self._lower.get(name.lower(), [])
        return same[0] if len(same) == 1 else None

    def given(self, name: str) -> str | None:
        """The column that a name in a user's rows means, in any case."""
        place = self.find(name)
        return None if place is None else self._names[place]

    def case_matters(self, name: str) -> bool:
        """Whether two of the names differ from this one in case at most, so that case tells them apart."""
        return len(self._lower.get(name.lower(), [])) > 1


def find_name(name: str, names: Iterable[str]) -> int | None:
    """The place of the column that a name of CQL means, for one look."""
    return Names(names).find(name)


def unique_names(names: Sequence[str], taken: Sequence[str] = (), exact: Sequence[bool] = ()) -> list[str]:
    """The names, a second ``a`` made ``a_2`` and so on; none of ``taken`` is used in any case.

    ``A`` is a second ``a``, unless case matters for one of them: ``exact`` says for which.
    """
    reserved = {name.lower() for name in taken}
    used: set[str] = set()
    result: list[str] = []
    for i, name in enumerate(names):
        matters = bool(exact) and exact[i]
        unique, n = name, 1
        while unique.lower() in reserved or unique in used or (unique if matters else unique.lower()) in used:
            n += 1
            unique = f"{name}_{n}"
        used |= {unique} if matters else {unique, unique.lower()}
        result.append(unique)
    return result


def counted(n: int, what: str, several: str | None = None) -> str:
    """``1 value``, ``2 values``; ``several``: the plural, where it is not made with an s."""
    return f"{n} {what if n == 1 else several or f'{what}s'}"
