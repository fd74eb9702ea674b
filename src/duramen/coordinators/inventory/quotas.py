"""Quotas of the inventory: the number of topics, the bytes that they store, and their write and read rates."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from duramen.base.catalogue.inventory import (
    ACCOUNT,
    BYTES_QUOTA,
    CONSUMER_RATE,
    NAMESPACE,
    PRODUCER_RATE,
    TENANT,
    TOPIC,
    TOPIC_QUOTA,
)
from duramen.base.errors import BytesQuotaExceeded, DuramenError, TopicQuotaExceeded
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock
from duramen.broker.quotas import RateTable
from duramen.coordinators.inventory.shards import Done, InventoryShards
from duramen.inventory.directory import Directory
from duramen.inventory.events import Policies
from duramen.inventory.ids import TopicKey, topic_key
from duramen.inventory.names import NamedProblem, TopicPath, sorted_names
from duramen.inventory.policies import Limit, PolicyScope, limits

__all__ = ["CreatedNames", "InventoryQuotas", "StoredBytes", "TopicOwner"]

_AGAIN_MS: Final = 20
_LOOKED_UP_AT_ONCE: Final = 1000
_MOST_CHAINS: Final = 10_000
_REFRESHED_AT_ONCE: Final = 200
_COUNTED_ALWAYS: Final = 100
"""On a cluster the topics of so many namespaces are counted for each creation, because other nodes create some too."""
_COUNTED_MS: Final = 1_000
"""On a cluster a count of more namespaces is used for so long."""

Make = Callable[[Sequence[str], Done], None]
"""Creates topics by their names; the callback gets `CreatedNames`."""


class CreatedNames(NamedTuple):
    """The outcome of creating names: how many are new, how many existed, and which are refused.

    `aliases` are existing ones that are not yet known to resolve to a topic.
    """

    created: int
    existing: int
    problems: Sequence[NamedProblem]
    aliases: Sequence[bytes] = ()


class TopicOwner(NamedTuple):
    """A topic, and its namespace."""

    namespace: int
    key: TopicKey


class EntryName(Protocol):
    """A resolved name of a topic: its path, the topic's lasting id, whether it is an alias, the topic's namespace."""

    @property
    def path(self) -> TopicPath: ...

    @property
    def id(self) -> UUID: ...

    @property
    def alias(self) -> bool: ...

    @property
    def namespace(self) -> int: ...


class StoredBytes(Protocol):
    """The stored bytes of topics, by namespace."""

    def bytes(self, scope: PolicyScope) -> int:
        """The stored bytes of an account, a tenant or a namespace, as known on this node."""

    def add(self, namespace: int, more: int) -> None:
        """Reserve bytes of a namespace for pending writes; a negative number releases them."""

    def refresh(self, done: Callable[[], None]) -> None:
        """Ask other nodes for their stored bytes."""


class _Bound(NamedTuple):
    """A quota, an upper bound of its used and reserved amount, and its description."""

    limit: Limit
    used: int
    described: str


_Chain: TypeAlias = list[tuple[PolicyScope, Policies]]


class InventoryQuotas:
    """The quotas that policies set, and their usage."""

    def __init__(self, shards: InventoryShards, clock: Clock, rates: RateTable, metrics: Metrics) -> None:
        self._shards = shards
        self._clock = clock
        self._rates = rates
        self._throttled = {
            name: metrics.counter("duramen_inventory_throttled_total", name) for name in (PRODUCER_RATE, CONSUMER_RATE)
        }
        self._refused = metrics.counter("duramen_inventory_topics_refused_total")
        self._full = metrics.counter("duramen_inventory_batches_refused_total", BYTES_QUOTA)
        self.stored: StoredBytes | None = None
        """The counter of stored bytes, set by its owner."""

        self._most: dict[PolicyScope, int] = {}  # upper bounds of existing and pending topics
        self._counted: dict[PolicyScope, int] = {}  # the times of the last counts
        self._under_way: dict[PolicyScope, int] = {}
        self._chains: dict[Hashable, tuple[str, EntryName, _Chain]] = {}  # policies at the last lookup
        self._asking: set[Hashable] = set()
        self._refreshed = 0

    # -- numbers of topics --------------------------------------------------------------------------

    def create(self, namespace: int, names: Sequence[str], make: Make, done: Done) -> None:
        """Create as many topics as the quotas allow, in the order of their names; the others are refused."""

        def counted(bounds: list[_Bound]) -> None:
            room = max(0, _room(bounds)) if bounds else len(names)
            if not bounds:
                make(names, done)
            elif len(names) <= room:
                self._make(bounds, names, [], make, done)
            else:
                good, _ = sorted_names(names)
                self._shards.read(partial(self._new, namespace, good), partial(looked_up, bounds, room))

        def looked_up(bounds: list[_Bound], room: int, new: list[bytes] | DuramenError) -> None:
            if isinstance(new, DuramenError):
                done(new)
            else:
                self._make(bounds, names, new[room:], make, done)

        self._count(partial(self._chain_of, namespace), len(names), counted, done)

    def _make(self, bounds: list[_Bound], names: Sequence[str], over: Sequence[bytes], make: Make, done: Done) -> None:
        refused = {name.decode() for name in over}
        allowed = [name for name in names if name not in refused] if refused else names
        taken, why = len(allowed), _exceeded(bounds)
        self._refused.value += len(refused)
        self._reserve(bounds, taken)

        def made(answer: CreatedNames | DuramenError) -> None:
            created = taken if isinstance(answer, DuramenError) else answer.created  # without a response, all may exist
            self._release(bounds, taken, created)
            if isinstance(answer, CreatedNames):
                problems = [NamedProblem(name, why) for name in sorted(refused)]
                answer = answer._replace(problems=[*answer.problems, *problems])
            done(answer)

        make(allowed, made)

    def move(self, origin: int, target: int, go: Callable[[Done], None], done: Done, topics: int = 1) -> None:
        """Reserve quota for topics that `go` moves to another namespace: for all of them or none."""

        def chain() -> _Chain:
            there = {scope for scope, _ in self._chain_of(origin)}
            return [(scope, own) for scope, own in self._chain_of(target) if scope not in there]

        self._take(chain, lambda: topics, go, done)

    def move_namespace(self, namespace: int, tenant: int, go: Callable[[Done], None], done: Done) -> None:
        """Reserve quota for a namespace with all its topics that moves to another tenant."""

        def chain() -> _Chain:
            directory = self._shards.directory()
            there = {scope for scope, _ in self._chain_of(namespace)}
            found = directory.tenant_by_id(tenant)
            scopes = [PolicyScope(TENANT, id=tenant), PolicyScope(ACCOUNT, "" if found is None else found.account)]
            return [(scope, directory.policies.own(scope)) for scope in scopes if scope not in there]

        self._take(chain, lambda: self._shards.rows().count(namespace), go, done)

    def _take(
        self, chain: Callable[[], _Chain], count: Callable[[], int], go: Callable[[Done], None], done: Done
    ) -> None:
        """Run `go`, which adds topics to a chain of scopes, if the quotas allow it; else refuse."""

        def known(more: int | DuramenError) -> None:
            if isinstance(more, DuramenError):
                done(more)
            else:
                self._count(chain, more, partial(counted, more), done)

        def counted(more: int, bounds: list[_Bound]) -> None:
            if not bounds:
                go(done)
            elif more > _room(bounds):
                self._refused.value += more
                done(_exceeded(bounds))
            else:
                self._reserve(bounds, more)
                go(partial(ended, bounds, more))

        def ended(bounds: list[_Bound], more: int, answer: Any) -> None:
            self._release(bounds, more, more)  # after a refusal the usage is counted again when needed
            done(answer)

        self._shards.read(lambda: count() if any(limits(TOPIC_QUOTA, chain())) else 0, known)

    def _count(self, chain: Callable[[], _Chain], more: int, then: Callable[[list[_Bound]], None], done: Done) -> None:
        """`then` gets the quotas of a chain with their usage; counts again if there is no room for more.

        If pending creations may use less than they reserved, it waits for them first.
        """
        found = partial(self._found, chain, more, then, done, fresh=False)
        self._shards.read(partial(self._bounds, chain, fresh=False), found)

    def _found(
        self, chain: Callable[[], _Chain], more: int, then: Callable[[list[_Bound]], None], done: Done,
        answer: tuple[_Chain, list[_Bound]] | DuramenError, *, fresh: bool,
    ) -> None:  # fmt: skip
        if isinstance(answer, DuramenError):
            done(answer)
            return
        scopes, bounds = answer
        bounded = {bound.limit.scope for bound in bounds}
        for scope, _ in scopes:
            if scope not in bounded:
                self._most.pop(scope, None)  # topics created now are not in the count
                self._counted.pop(scope, None)
        self._most |= {bound.limit.scope: bound.used for bound in bounds}
        if fresh or not bounds or more <= _room(bounds):
            then(bounds)
        elif any(self._under_way.get(scope) for scope in bounded):
            self._shards.later(_AGAIN_MS, partial(self._count, chain, more, then, done))
        else:
            found = partial(self._found, chain, more, then, done, fresh=True)
            self._shards.read(partial(self._bounds, chain, fresh=True), found)

    def _bounds(self, chain: Callable[[], _Chain], *, fresh: bool) -> tuple[_Chain, list[_Bound]]:
        """A query: the quotas of a chain, with their usage."""
        scopes, found = chain(), list[_Bound]()
        for limit in limits(TOPIC_QUOTA, scopes):
            used = None if fresh else self._counted_before(limit.scope)
            if used is None:
                used = self.count(limit.scope) + self._under_way.get(limit.scope, 0)
                self._counted[limit.scope] = self._clock.monotonic_ms()
            found.append(_Bound(limit, used, self._described(limit.scope)))
        return scopes, found

    def _counted_before(self, scope: PolicyScope) -> int | None:
        """The upper bound from the last count; None: it has to be counted."""
        if not self._shards.alone:
            age_ms = self._clock.monotonic_ms() - self._counted.get(scope, -_COUNTED_MS)
            if age_ms >= _COUNTED_MS or len(self._namespaces(scope)) <= _COUNTED_ALWAYS:
                return None
        return self._most.get(scope)

    def _chain_of(self, namespace: int) -> _Chain:
        return self._shards.directory().policies_of(namespace)

    def _described(self, scope: PolicyScope) -> str:
        directory = self._shards.known_directory() or Directory()
        if scope.level == ACCOUNT:
            return f"the account {scope.account}"
        if scope.level == TENANT:
            tenant = directory.tenant_by_id(scope.id)
            return "the tenant" if tenant is None else f"the tenant {tenant.name}"
        namespace = directory.namespace_by_id(scope.id)
        tenant = None if namespace is None else directory.tenant_by_id(namespace.tenant)
        if namespace is None or tenant is None:
            return "the namespace"
        return f"the namespace {tenant.name}/{namespace.name}"

    def _new(self, namespace: int, names: Sequence[bytes]) -> list[bytes]:
        rows, found = self._shards.rows(), list[bytes]()
        for at in range(0, len(names), _LOOKED_UP_AT_ONCE):
            some = names[at : at + _LOOKED_UP_AT_ONCE]
            there = rows.find_many(namespace, some)
            found += [name for name, row in zip(some, there, strict=True) if row is None]
        return found

    def _reserve(self, bounds: Iterable[_Bound], count: int) -> None:
        for scope in (bound.limit.scope for bound in bounds):
            self._most[scope] += count
            self._under_way[scope] = self._under_way.get(scope, 0) + count

    def _release(self, bounds: Iterable[_Bound], count: int, made: int) -> None:
        for scope in (bound.limit.scope for bound in bounds):
            left = self._under_way[scope] - count
            if left:
                self._under_way[scope] = left
            else:
                del self._under_way[scope]
            if scope in self._most:
                self._most[scope] -= count - made

    def count(self, scope: PolicyScope) -> int:
        """The number of topics of an account, a tenant or a namespace. Raises CoordinatorLoading."""
        rows = self._shards.rows()
        return sum(map(rows.count, self._namespaces(scope)))

    def _namespaces(self, scope: PolicyScope) -> list[int]:
        if scope.level == NAMESPACE:
            return [scope.id]
        directory = self._shards.directory()
        tenants = [scope.id] if scope.level == TENANT else [one.id for one in directory.tenants(scope.account)]
        return [one.id for tenant in tenants for one in directory.namespaces(tenant)]

    # -- stored bytes -------------------------------------------------------------------------------

    def store(self, account: str, topic: EntryName, size: int) -> Callable[[], None]:
        """Reserve bytes that a topic is to store; call the result once they are stored, or will not be.

        Raises BytesQuotaExceeded.
        """
        directory, stored = self._shards.known_directory(), self.stored
        if stored is None or (directory is not None and not directory.policies.sets(BYTES_QUOTA)):
            return _nothing
        for limit in self.limits_of(BYTES_QUOTA, account, topic):
            if stored.bytes(limit.scope) + size > limit.value:
                self._full.value += 1
                raise BytesQuotaExceeded(
                    f"{self._described(limit.scope)} may store {limit.value:,} bytes in all ({BYTES_QUOTA})"
                )
        stored.add(topic.namespace, size)
        return partial(stored.add, topic.namespace, -size)

    def refresh_usage(self, done: Done) -> None:
        """Update `used` with the stored bytes of all nodes; `done` gets None."""
        if self.stored is None:
            done(None)
        else:
            self.stored.refresh(partial(done, None))

    # -- rates --------------------------------------------------------------------------------------

    def produced(self, account: str, topic: EntryName, size: int) -> int:
        """Count bytes sent to a topic; returns the throttle time of the client in ms."""
        return self._count_bytes(PRODUCER_RATE, account, topic, size)

    def produce_wait_ms(self, account: str, topic: EntryName) -> int:
        """The throttle time in ms of producers to a topic."""
        now_ms, bounds = self._clock.monotonic_ms(), self.limits_of(PRODUCER_RATE, account, topic)
        waits = (self._rates.wait_ms((PRODUCER_RATE, limit.scope), limit.value, now_ms) for limit in bounds)
        return max(waits, default=0)

    def consumed(self, account: str, topic: EntryName, size: int) -> int:
        """Count bytes read from a topic; returns the throttle time of the client in ms."""
        return self._count_bytes(CONSUMER_RATE, account, topic, size)

    def _count_bytes(self, name: str, account: str, topic: EntryName, size: int) -> int:
        now_ms, bounds = self._clock.monotonic_ms(), self.limits_of(name, account, topic)
        waits_ms = [self._rates.record((name, limit.scope), limit.value, size, now_ms) for limit in bounds]
        wait_ms = max(waits_ms, default=0)
        self._throttled[name].value += wait_ms > 0
        return wait_ms

    def limits_of(self, name: str, account: str, topic: EntryName) -> Sequence[Limit]:
        """The limits of a policy that apply to a topic on this node now."""
        return [*limits(name, self._known(account, topic))]

    def _known(self, account: str, topic: EntryName) -> _Chain:
        """The policies of a topic and its scopes; the last known ones if other nodes have to be asked."""
        key = account, topic.path, topic.id

        def query() -> _Chain:
            return self.chain(self.owner(account, topic))

        try:
            return query()
        except DuramenError:
            pass
        if key not in self._asking:
            self._asking.add(key)
            self._shards.read(query, partial(self._asked, key, account, topic, self._refreshed))
        known = self._chains.get(key)
        return [] if known is None else known[2]  # the topic is deleted, or new on this node

    def _asked(
        self, key: Hashable, account: str, topic: EntryName, refreshed: int, answer: _Chain | DuramenError
    ) -> None:  # fmt: skip
        self._asking.discard(key)
        if refreshed != self._refreshed:
            return  # the response may be older than later requests
        self._chains.pop(key, None)
        if not isinstance(answer, DuramenError):
            if len(self._chains) >= _MOST_CHAINS:
                del self._chains[next(iter(self._chains))]
            self._chains[key] = account, topic, answer

    def refresh(self, done: Callable[[DuramenError | None], None]) -> None:
        """Look up all known policies again; `done` is called once older ones no longer apply, or with an error."""
        self._refreshed += 1
        self._refresh(list(self._chains), done)

    def _refresh(self, keys: Sequence[Hashable], done: Callable[[DuramenError | None], None]) -> None:
        some = {key: self._chains[key] for key in keys[:_REFRESHED_AT_ONCE] if key in self._chains}

        def query() -> list[_Chain | DuramenError]:
            return [self._chain_or_error(account, topic) for account, topic, _ in some.values()]

        def asked(answer: list[_Chain | DuramenError] | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
                return
            for (key, (account, topic, _)), chain in zip(some.items(), answer, strict=True):
                self._chains.pop(key, None)
                if not isinstance(chain, DuramenError):
                    self._chains[key] = account, topic, chain
            self._refresh(keys[_REFRESHED_AT_ONCE:], done)

        if keys:
            self._shards.read(query, asked)
        else:
            done(None)

    def _chain_or_error(self, account: str, topic: EntryName) -> _Chain | DuramenError:
        try:
            return self.chain(self.owner(account, topic))
        except DuramenError as error:
            return error

    def owner(self, account: str, topic: EntryName) -> TopicOwner:
        """The owner of a topic by one of its names. Raises TopicNotFound, CoordinatorLoading."""
        key = topic_key(self._shards.inventory_id, topic.id, self._shards.count)
        if topic.alias:
            return TopicOwner(self._shards.rows().place(key).namespace, key)
        return TopicOwner(self._shards.directory().namespace(account, topic.path.tenant, topic.path.namespace).id, key)

    def chain(self, owner: TopicOwner) -> _Chain:
        """The policies of a topic, its namespace, its tenant and its account, in this order."""
        own = self._shards.rows().policies(owner.key)
        of_namespace = self._chain_of(owner.namespace)
        return [(PolicyScope(TOPIC, topic=owner.key), own), *of_namespace]

    def used(self, name: str, scope: PolicyScope) -> int:
        """The present usage of a quota."""
        if name == TOPIC_QUOTA:
            return self.count(scope)
        if name == BYTES_QUOTA:
            return 0 if self.stored is None else self.stored.bytes(scope)
        return round(self._rates.rate((name, scope), self._clock.monotonic_ms()))


def _nothing() -> None:
    """There is nothing to release."""


def _room(bounds: Iterable[_Bound]) -> int:
    return min(bound.limit.value - bound.used for bound in bounds)


def _exceeded(bounds: Iterable[_Bound]) -> TopicQuotaExceeded:
    fullest = min(bounds, key=lambda bound: bound.limit.value - bound.used)
    return TopicQuotaExceeded(f"{fullest.described} may have {fullest.limit.value:,} topics in all ({TOPIC_QUOTA})")
