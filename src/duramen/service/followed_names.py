"""Names of namespaces that groups of this node mean, kept current by a subscription to each namespace."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.countdown import ErrorCountdown
from duramen.base.errors import (
    DuramenError,
    InventoryPositionLost,
    NamespaceNotFound,
    NodeBusy,
    TenantNotFound,
)
from duramen.coordinators.inventory.feed import ChangePage
from duramen.coordinators.inventory.topics import FoundTopic, TopicPage
from duramen.inventory.names import TopicPath
from duramen.inventory.search import PageToken, TopicQuery
from duramen.service.broker import Broker

__all__ = ["FollowedNames", "Wanted"]

Done = Callable[[DuramenError | None], None]

_PAGE: Final = 1000
_WAIT_MS: Final = 30_000
_AGAIN_MS: Final = 500
_UNUSED_MS: Final = 600_000
_MOST_NAMESPACES: Final = 1000
_NOT_THERE: Final = (TenantNotFound, NamespaceNotFound)


class Wanted(NamedTuple):
    """Names of a namespace that are to be known; with `every` all of them, up to a bound."""

    tenant: str
    namespace: str
    names: frozenset[str]
    every: bool = False


class FollowedNames:
    """The topics of names in namespaces. `version` rises when the topic of a requested name changes."""

    def __init__(self, broker: Broker, most_listed: int) -> None:
        self.broker = broker
        self.account = broker.settings.text("inventory.account")
        self.most_listed = most_listed
        self.version = 0
        self._namespaces: dict[tuple[str, str], _Namespace] = {}

    def find(self, path: TopicPath) -> FoundTopic | None:
        """The known topic of a name."""
        namespace = self._namespaces.get((path.tenant, path.namespace))
        return None if namespace is None else namespace.find(path.topic)

    def every(self, tenant: str, namespace: str) -> Sequence[FoundTopic]:
        """All names of a namespace, as far as they are known."""
        found = self._namespaces.get((tenant, namespace))
        return () if found is None else found.every()

    def when_known(self, wanted: Iterable[Wanted], done: Done) -> None:
        """`done` once all these names are known, and kept current from then on; or with why they cannot be."""
        parts = ErrorCountdown(done)
        for one in wanted:
            parts.add()
            self._at(one).want(one, parts.count_down)
        parts.count_down()

    def _at(self, wanted: Wanted) -> "_Namespace":
        key = wanted.tenant, wanted.namespace
        if key not in self._namespaces:
            if len(self._namespaces) >= _MOST_NAMESPACES:
                return _Full(self, *key)
            self._namespaces[key] = _Namespace(self, *key)
        return self._namespaces[key]

    def end(self, namespace: "_Namespace") -> None:
        """It is followed no more."""
        self._namespaces.pop((namespace.tenant, namespace.name), None)


class _Namespace:
    """The names of one namespace. It is loaded, then loaded again after each change."""

    def __init__(self, followed: FollowedNames, tenant: str, name: str) -> None:
        self._followed = followed
        self._broker = followed.broker
        self.tenant = tenant
        self.name = name
        self._names: dict[str, FoundTopic | None] = {}
        self._every: list[FoundTopic] | None = None
        self._wanted = set[str]()
        self._wants_every = False
        self._waiting: list[tuple[Wanted, Done]] = []
        self._position = ""
        self._loading = False
        self._number = 0  # of the wait for the next change: callbacks of earlier ones are late
        self._cancel: Callable[[], None] = _nothing
        self._used_ms = 0

    def find(self, name: str) -> FoundTopic | None:
        """The topic of a name."""
        return self._names.get(name)

    def every(self) -> Sequence[FoundTopic]:
        """All names, where they were asked for."""
        return self._every or ()

    def want(self, wanted: Wanted, done: Done) -> None:
        """`done` once these are known."""
        self._used_ms = self._broker.monotonic_ms()
        if self._has(wanted):
            done(None)
            return
        self._wanted |= wanted.names
        self._wants_every = self._wants_every or wanted.every
        self._waiting.append((wanted, done))
        if not self._loading:
            self._number += 1
            self._cancel()
            self._begin()

    def _has(self, wanted: Wanted) -> bool:
        return wanted.names <= self._names.keys() and (not wanted.every or self._every is not None)

    # -- loading ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Find the position from which to follow changes, then load the names."""
        self._loading = True
        if self._position:
            self._load()
        else:
            self._poll(0)

    def _poll(self, wait_ms: int) -> None:
        inventory, account = self._broker.inventory, self._followed.account
        scope = partial(inventory.scope, account, [self.tenant, self.name])
        told = partial(self._told, self._number)
        self._cancel = inventory.feed.poll(scope, self._position, _PAGE, wait_ms, told)

    def _told(self, number: int, answer: ChangePage | DuramenError) -> None:
        if number != self._number:
            return
        self._loading = True
        if isinstance(answer, InventoryPositionLost):
            self._position = ""
            self._poll(0)
        elif isinstance(answer, _NOT_THERE):
            self._put({}, [])  # it may come to be: it is asked for again
            self._rest(4 * _AGAIN_MS)
        elif isinstance(answer, DuramenError):
            self._fail(answer)
        else:
            new = not self._position
            self._position = answer.position
            if answer.changes or new:
                self._load()
            else:
                self._rest(0)

    def _load(self) -> None:
        inventory, names = self._broker.inventory, sorted(self._wanted)
        look_up = partial(inventory.lookup, self._followed.account, self.tenant, self.name, names)
        inventory.read(look_up, partial(self._looked_up, names))

    def _looked_up(self, names: Sequence[str], answer: list[FoundTopic | None] | DuramenError) -> None:
        if isinstance(answer, _NOT_THERE):
            answer = [None] * len(names)
        if isinstance(answer, DuramenError):
            self._fail(answer)
            return
        found = dict(zip(names, answer, strict=True))
        if self._wants_every:
            self._list(found, [], PageToken())
        else:
            self._loaded(found, None)

    def _list(self, found: dict[str, FoundTopic | None], every: list[FoundTopic], token: PageToken) -> None:
        inventory = self._broker.inventory
        search = partial(inventory.search, self._followed.account, self.tenant, self.name, TopicQuery(), token, _PAGE)

        def searched(page: TopicPage | DuramenError) -> None:
            if isinstance(page, DuramenError) and not isinstance(page, _NOT_THERE):
                self._fail(page)
                return
            more = None if isinstance(page, DuramenError) else page.token
            every.extend(() if isinstance(page, DuramenError) else page.topics)
            if more is None or len(every) >= self._followed.most_listed:
                self._loaded(found | {one.path.topic: one for one in every}, every[: self._followed.most_listed])
            else:
                self._list(found, every, more)

        inventory.read(search, searched)

    def _loaded(self, found: dict[str, FoundTopic | None], every: list[FoundTopic] | None) -> None:
        self._put(found, every)
        if self._waiting:
            self._load()  # something else was asked for meanwhile
        else:
            self._rest(_AGAIN_MS)

    def _put(self, found: dict[str, FoundTopic | None], every: list[FoundTopic] | None) -> None:
        before, self._names = self._names, dict.fromkeys(self._wanted) | found
        if self._wants_every and every is not None:
            self._every = every
        if any(before[name] != self._names.get(name) for name in before) or before.keys() != self._names.keys():
            self._followed.version += 1
        waiting, self._waiting = self._waiting, []
        for wanted, done in waiting:
            if self._has(wanted):
                done(None)
            else:
                self._waiting.append((wanted, done))

    def _fail(self, error: DuramenError) -> None:
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(error)
        self._rest(_AGAIN_MS)

    def _rest(self, pause_ms: int) -> None:
        self._loading = False
        self._broker.later(pause_ms, partial(self._go_on, self._number))

    def _go_on(self, number: int) -> None:
        """Wait for the next change, as long as the names are in use."""
        if number != self._number:
            return
        if self._broker.monotonic_ms() - self._used_ms > _UNUSED_MS:
            self._followed.end(self)
        else:
            self._poll(_WAIT_MS if self._position else 0)


def _nothing() -> None:
    """Nothing is to be cancelled."""


class _Full(_Namespace):
    """One namespace too many."""

    def want(self, wanted: Wanted, done: Done) -> None:
        """It is refused."""
        done(NodeBusy(f"groups of this node follow {_MOST_NAMESPACES} namespaces already: {wanted.namespace} is more"))
