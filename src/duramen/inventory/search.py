"""Searches of names: by prefix, glob or regular expression, page by page. Pure.

A page token is the last position of the page and a digest of the query: concurrent changes of names do not shift pages.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from duramen.base.errors import PageTokenInvalid, PatternInvalid, RequestInvalid
from duramen.base.patterns import match_range, pattern_of

__all__ = ["PageToken", "TopicQuery", "after", "check_query", "page_token", "prefix_end", "read_token"]

_GLOB: Final = frozenset("*?[")
_META: Final = frozenset("\\.+*?()|[]{}^$")


class TopicQuery(NamedTuple):
    """Names that start with `prefix` and match `glob` and `pattern`, an RE2 expression for whole names."""

    prefix: str = ""
    glob: str = ""
    pattern: str = ""

    def bounds(self) -> tuple[bytes, bytes | None]:
        """Every match is at or after the first of these, and before the second. Raises PatternInvalid."""
        first, last = match_range(self.pattern) if self.pattern else (b"", None)
        end = None if last is None else after(last)
        for literal in (self.prefix.encode(errors="replace"), _literal_of_glob(self.glob).encode(errors="replace")):
            limit = prefix_end(literal)
            first, end = max(first, literal), limit if end is None or (limit is not None and limit < end) else end
        return first, end

    def matcher(self) -> Callable[[str], bool] | None:
        """Whether a name within the bounds matches; None: all do. Raises PatternInvalid."""
        tests = list[Callable[[str], bool]]()
        if self.glob:
            tests.append(_glob_matcher(self.glob))
        if self.pattern:
            tests.append(pattern_of(self.pattern))
        if self.prefix and tests:
            tests.append(lambda name: name.startswith(self.prefix))
        if not tests:
            return None
        return tests[0] if len(tests) == 1 else lambda name: all(test(name) for test in tests)


class PageToken(NamedTuple):
    """The start of the next page: the name, namespace and tenant after which it starts.

    On a cluster `positions` are those of the shards that were read, by epoch and offset: the node that serves the next
    page reads no older state.
    """

    tenant: str = ""
    namespace: str = ""
    topic: str = ""
    positions: Sequence[tuple[int, int]] = ()


def _literal_of_glob(glob: str) -> str:
    return glob[: next((at for at, character in enumerate(glob) if character in _GLOB), len(glob))]


def _glob_matcher(glob: str) -> Callable[[str], bool]:
    pattern = _glob_pattern(glob)
    try:
        return pattern_of(pattern)
    except PatternInvalid:
        why = "[...] has characters, and ranges from a lower to a higher one"
        raise PatternInvalid(f"{glob!r} is no glob: {why}") from None


def _glob_pattern(glob: str) -> str:
    """A glob as RE2: `*` any characters, `?` one, `[...]` one of these, `[!...]` one of none of these.

    Raises PatternInvalid if a `[` is not closed.
    """
    parts, at = list[str](), 0
    while at < len(glob):
        character = glob[at]
        close = glob.find("]", at + 2) if character == "[" else -1
        if character == "*":
            parts.append(".*")
        elif character == "?":
            parts.append(".")
        elif close > 0:
            inside = glob[at + 1 : close].replace("\\", "\\\\").replace("[", "\\[")
            negated = inside.startswith("!")
            inside = inside[1:] if negated else inside
            parts.append(f"[{'^' if negated else ''}{inside.replace('^', chr(92) + '^')}]")
            at = close
        elif character == "[":
            raise PatternInvalid(f"{glob!r} is no glob: no ] closes the [ at character {at + 1}; [[] is a [ itself")
        else:
            parts.append("\\" + character if character in _META else character)
        at += 1
    return "(?s:" + "".join(parts) + ")"


def prefix_end(prefix: bytes) -> bytes | None:
    """The end of all names with a prefix; None: there is no end."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else None


def after(name: bytes) -> bytes:
    """The first name after this one."""
    return name + b"\x00"


def _digest(scope: str, query: TopicQuery) -> int:
    return crc32("\x00".join((scope, *query)).encode("utf-8", "surrogatepass"))


def page_token(scope: str, query: TopicQuery, token: PageToken) -> str:
    """The text of a page token of a query in a scope."""
    return urlsafe_b64encode(msgspec.msgpack.encode((_digest(scope, query), *token))).decode().rstrip("=")


def read_token(text: str, scope: str, query: TopicQuery) -> PageToken:
    """The token of a text; empty: the first page. Raises PageTokenInvalid for that of another query."""
    if not text:
        return PageToken()
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        digest, tenant, namespace, topic, positions = msgspec.msgpack.decode(
            urlsafe_b64decode(padded), type=tuple[int, str, str, str, tuple[tuple[int, int], ...]]
        )
    except (ValueError, UnicodeError, msgspec.MsgspecError):
        raise PageTokenInvalid("that is no page token: `after` takes the `next` of the page before") from None
    if digest != _digest(scope, query):
        raise PageTokenInvalid("the page token is of another query: ask what was asked for the page before")
    return PageToken(tenant, namespace, topic, positions)


def check_query(query: TopicQuery) -> None:
    """Raise RequestInvalid or PatternInvalid for an invalid query."""
    if max(map(len, query)) > 1000:
        raise RequestInvalid("a prefix, a glob and a pattern have 1000 characters at most")
    query.matcher()
