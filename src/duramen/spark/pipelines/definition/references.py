"""The tables that a SQL text reads, with their places: the names where Spark's grammar has a relation. Pure.

It only finds names, to order steps; Spark checks whether the SQL is valid.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["Reference", "references"]

_TOKEN: Final = re.compile(
    r"""
    (?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<string>'(?:[^'\\]|\\.|'')*(?:'|\Z)|"(?:[^"\\]|\\.|"")*(?:"|\Z))
    |`(?P<quoted>(?:[^`]|``)*)(?:`|\Z)
    |(?P<word>[^\W\d]\w*)
    |(?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BEGIN: Final = frozenset({"from", "join"})
_MODIFIERS: Final = frozenset({"lateral", "stream"})
_CONDITION: Final = frozenset({"on", "using"})
_FROM_INSIDE: Final = frozenset({"extract", "trim", "substring", "substr", "overlay"})
"""Functions whose arguments may have FROM."""

_END: Final = frozenset({
    "where", "group", "having", "order", "sort", "cluster", "distribute", "limit", "offset", "window", "union",
    "intersect", "except", "minus", "select", "qualify", "pivot", "unpivot", "tablesample",
})  # fmt: skip


class Reference(NamedTuple):
    """A name in place of a relation; `line` from 1, `column` from 0."""

    name: str
    line: int
    column: int


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


class _Level(NamedTuple):
    """Within parentheses: whether a relation comes next, commas separate relations, they are such a function's."""

    expects: bool = False
    lists: bool = False
    function: bool = False


def _tokens(sql: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(sql):
        kind = found.lastgroup or "other"
        if kind == "quoted":
            yield _Token("name", found["quoted"].replace("``", "`"), found.start())
        elif kind != "skip":
            yield _Token(kind, found[kind], found.start())


def references(sql: str) -> list[Reference]:
    """Every table that is named, once for each place; without tables of a catalog (`a.b`), functions and CTEs."""
    tokens = list(_tokens(sql))
    own = set(_cte_names(tokens))
    levels = [_Level()]
    found = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1].word if index else ""
        level = levels[-1]
        if token.text == "(" and token.kind == "other":
            # A parenthesis in place of a relation has relations, or a new query.
            levels[-1] = level._replace(expects=False)
            levels.append(_Level(level.expects, level.expects, before in _FROM_INSIDE))
        elif token.text == ")" and token.kind == "other":
            levels = levels[:-1] or [_Level()]
        elif token.text == "," and token.kind == "other":
            levels[-1] = level._replace(expects=level.lists)
        elif token.word in _BEGIN and not (token.word == "from" and (before == "distinct" or level.function)):
            levels[-1] = _Level(expects=True, lists=True)
        elif level.expects and token.kind in ("word", "name"):
            if token.word in _MODIFIERS:
                continue
            levels[-1] = level._replace(expects=False)
            if token.word in ("select", "with", "values", "table"):
                levels[-1] = _Level(expects=token.word == "table")
            elif not _goes_on(tokens, index) and token.text.lower() not in own:
                line = sql.count("\n", 0, token.at) + 1
                found.append(Reference(token.text, line, token.at - (sql.rfind("\n", 0, token.at) + 1)))
        elif token.word in _CONDITION:
            levels[-1] = level._replace(expects=False)
        elif token.word in _END:
            levels[-1] = _Level()
    return found


def _goes_on(tokens: list[_Token], index: int) -> bool:
    """Whether the name is part of a longer one, or a function's."""
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    return after is not None and after.kind == "other" and after.text in ".("


def _cte_names(tokens: list[_Token]) -> Iterator[str]:
    """Names that the text defines: `name AS (`, with or without columns between."""
    for index, token in enumerate(tokens):
        if token.word != "as" or index + 1 >= len(tokens) or tokens[index + 1].text != "(" or not index:
            continue
        at = index - 1
        if tokens[at].text == ")":
            while at > 0 and tokens[at].text != "(":
                at -= 1
            at -= 1
        if at >= 0 and tokens[at].kind in ("word", "name"):
            yield tokens[at].text.lower()
