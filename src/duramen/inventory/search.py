"""Searches of names: by prefix, glob or regular expression, page by page. Pure.

A page token is the last position of the page and a digest of the query: concurrent changes of names do not shift pages.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from duramen.base.catalogue.inventory import POLICIES, TOPIC
from duramen.base.errors import GlobInvalid, PageTokenInvalid, PatternInvalid, RequestInvalid
from duramen.base.patterns import match_range, pattern_of
from duramen.inventory.events import Labels, Policies
from duramen.inventory.ids import TopicKey, durability_of_sequence

__all__ = ["DANGLING", "PageToken", "TopicQuery", "after", "check_query", "page_token", "prefix_end", "read_token"]

DANGLING: Final = "dangling-alias"
"""The kind of an alias whose topic was deleted with its namespace; only a query of this kind finds it."""

_GLOB: Final = frozenset("*?[")
_META: Final = frozenset("\\.+*?()|[]{}^$")


class TopicQuery(NamedTuple):
    """Names that start with `prefix` and match `glob` and `pattern`, an RE2 expression for whole names.

    The others are filters, empty: all. `label` is KEY or KEY=VALUE of a tenant or a namespace, and of the namespace or
    the tenant of a topic. Of topics: `kind` is `topic`, `alias` or `DANGLING`; `durability`; and `policy`, one that is
    set on the topic itself.
    """

    prefix: str = ""
    glob: str = ""
    pattern: str = ""
    label: str = ""
    kind: str = ""
    durability: str = ""
    policy: str = ""

    def has_label(self, *labels: Labels) -> bool:
        """Whether one of these has the label."""
        if not self.label:
            return True
        key, equals, value = self.label.partition("=")
        return any(key in one and (not equals or one[key] == value) for one in labels)

    def takes(self, key: TopicKey, own: Callable[[TopicKey], Policies], *, alias: bool) -> bool:
        """Whether a topic passes the filters; `own` reads its own policies."""
        if self.kind and alias == (self.kind == TOPIC):
            return False
        if self.durability and durability_of_sequence(key.sequence) != self.durability:
            return False
        return not self.policy or self.policy in own(key)

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
        raise GlobInvalid(f"{glob!r} is no glob: {why}") from None


def _glob_pattern(glob: str) -> str:
    """A glob as RE2: `*` any characters, `?` one, `[...]` one of these, `[!...]` one of none of these.

    Raises GlobInvalid if a `[` is not closed.
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
            raise GlobInvalid(f"{glob!r} is no glob: no ] closes the [ at character {at + 1}")
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
    """Raise RequestInvalid GlobInvalid or PatternInvalid for an invalid query."""
    if max(map(len, query)) > 1000:
        raise RequestInvalid("a prefix, a glob, a pattern and a label have 1000 characters at most")
    if query.policy and (query.policy not in POLICIES or TOPIC not in POLICIES[query.policy].levels):
        named = ", ".join(name for name, policy in sorted(POLICIES.items()) if TOPIC in policy.levels)
        raise RequestInvalid(f"{query.policy[:80]} is no policy that a topic can have: {named}")
    query.matcher()
