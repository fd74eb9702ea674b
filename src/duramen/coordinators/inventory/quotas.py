"""Quotas of the inventory: how many topics there may be, and how fast they may be written and read."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from duramen.base.catalogue_inventory import (
    ACCOUNT,
    CONSUMER_RATE,
    NAMESPACE,
    PRODUCER_RATE,
    TENANT,
    TOPIC,
    TOPIC_QUOTA,
)
from duramen.base.errors import DuramenError, TopicQuotaExceeded
from duramen.base.ports import Clock
from duramen.broker.quotas import RateTable
from duramen.coordinators.inventory.shards import Done, InventoryShards
from duramen.inventory.ids import TopicKey, topic_key
from duramen.inventory.names import NamedProblem, TopicPath, sorted_names
from duramen.inventory.policies import Limit, PolicyScope, limits

__all__ = ["CreatedNames", "InventoryQuotas", "TopicOwner"]

_AGAIN_MS: Final = 20
_LOOKED_UP_AT_ONCE: Final = 1000

Make = Callable[[Sequence[str], Done], None]
"""Creates topics by their names; the other gets `CreatedNames`."""


class CreatedNames(NamedTuple):
    """What became of names: how many are new, how many were there, and which are refused."""

    created: int
    existing: int
    problems: Sequence[NamedProblem]


class TopicOwner(NamedTuple):
    """A topic, and the namespace that it is in."""

    namespace: int
    key: TopicKey


class EntryName(Protocol):
    """A name of a topic that was found: its path, the topic's lasting id, and whether it is an alias."""

    @property
    def path(self) -> TopicPath: ...

    @property
    def id(self) -> UUID: ...

    @property
    def alias(self) -> bool: ...


class InventoryQuotas:
    """The quotas that policies say, and how much of them is used."""

    def __init__(self, shards: InventoryShards, clock: Clock, rates: RateTable) -> None:
        self._shards = shards
        self._clock = clock
        self._rates = rates
        self._most: dict[PolicyScope, int] = {}  # no more topics are there or under way; fewer where some were deleted
        self._under_way: dict[PolicyScope, int] = {}

    # -- how many topics ----------------------------------------------------------------------------

    def create(self, namespace: int, names: Sequence[str], make: Make, done: Done) -> None:
        """Make the topics that the quotas leave room for, in the order of their names; the others are refused."""
        try:
            bounds = self._topic_limits(namespace)
            if not bounds:
                make(names, done)
                return
            good, _ = sorted_names(names)
            if len(good) > self._room(bounds):
                if self._wait(bounds, partial(self.create, namespace, names, make, done)):
                    return
                self._count_again(bounds)
            room = self._room(bounds)
            if len(good) > room:
                good = self._new(namespace, good)
            refused = {name.decode() for name in good[max(0, room) :]}
            why = self._exceeded(bounds) if refused else None
        except DuramenError as error:
            done(error)
            return
        taken = min(len(good), max(0, room))
        self._reserve(bounds, taken)

        def made(answer: CreatedNames | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                self._release(bounds, taken, taken)  # some may have been made: it is counted again where that matters
                done(answer)
                return
            self._release(bounds, taken, answer.created)
            problems = [NamedProblem(name, why) for name in sorted(refused)] if why is not None else []
            done(answer._replace(problems=[*answer.problems, *problems]))

        allowed = [name for name in names if name not in refused] if refused else names
        make(allowed, made)

    def move(self, origin: int, target: int, go: Callable[[Done], None], done: Done) -> None:
        """Let a topic of a namespace come into another one, which `go` does."""
        try:
            left = {limit.scope for limit in self._topic_limits(origin)}
            bounds = [limit for limit in self._topic_limits(target) if limit.scope not in left]
            self.take(bounds, 1, go, done)
        except DuramenError as error:
            done(error)

    def move_namespace(self, namespace: int, tenant: int, go: Callable[[Done], None], done: Done) -> None:
        """Let a namespace come to a tenant with all its topics."""
        try:
            directory, policies = self._shards.directory(), self._shards.policies()
            there = {limit.scope for limit in self._topic_limits(namespace)}
            found = directory.tenant_by_id(tenant)
            account = "" if found is None else found.account
            scopes = [PolicyScope(TENANT, id=tenant), PolicyScope(ACCOUNT, account)]
            chain = [(scope, policies.own(scope)) for scope in scopes]
            bounds = [limit for limit in self._bounded(chain) if limit.scope not in there]
            count = self._shards.rows().count(namespace) if bounds else 0
            self.take(bounds, count, go, done)
        except DuramenError as error:
            done(error)

    def take(self, bounds: Sequence[Limit], count: int, go: Callable[[Done], None], done: Done) -> None:
        """Do what makes so many topics more, or refuse it."""
        if not bounds or not count:
            go(done)
            return
        try:
            if count > self._room(bounds):
                if self._wait(bounds, partial(self.take, bounds, count, go, done)):
                    return
                self._count_again(bounds)
            if count > self._room(bounds):
                raise self._exceeded(bounds)
        except DuramenError as error:
            done(error)
            return
        self._reserve(bounds, count)

        def ended(answer: Any) -> None:
            self._release(bounds, count, count)  # of what was refused it is counted again where that matters
            done(answer)

        go(ended)

    def _topic_limits(self, namespace: int) -> list[Limit]:
        return self._bounded(self._shards.policies().chain(self._shards.directory(), namespace))

    def _bounded(self, chain: Sequence[tuple[PolicyScope, Any]]) -> list[Limit]:
        found = list(limits(TOPIC_QUOTA, chain))
        if self._most and len(found) < len(chain):
            for scope in {scope for scope, _ in chain} - {limit.scope for limit in found}:
                self._most.pop(scope, None)  # what is made there now is not counted
        return found

    def _room(self, bounds: Iterable[Limit]) -> int:
        return min(limit.value - self._known(limit.scope) for limit in bounds)

    def _known(self, scope: PolicyScope) -> int:
        if scope not in self._most:
            self._most[scope] = self.count(scope) + self._under_way.get(scope, 0)
        return self._most[scope]

    def _wait(self, bounds: Iterable[Limit], again: Callable[[], None]) -> bool:
        """Whether others are under way, which may come to less than they were given room for."""
        if not any(self._under_way.get(limit.scope) for limit in bounds):
            return False
        self._shards.later(_AGAIN_MS, again)
        return True

    def _count_again(self, bounds: Iterable[Limit]) -> None:
        for limit in bounds:
            self._most[limit.scope] = self.count(limit.scope)

    def _exceeded(self, bounds: Iterable[Limit]) -> TopicQuotaExceeded:
        fullest = min(bounds, key=lambda limit: limit.value - self._known(limit.scope))
        return TopicQuotaExceeded(
            f"{self._described(fullest.scope)} may have {fullest.value:,} topics in all ({TOPIC_QUOTA})"
        )

    def _described(self, scope: PolicyScope) -> str:
        directory = self._shards.directory()
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

    def _reserve(self, bounds: Iterable[Limit], count: int) -> None:
        for limit in bounds:
            self._most[limit.scope] = self._known(limit.scope) + count
            self._under_way[limit.scope] = self._under_way.get(limit.scope, 0) + count

    def _release(self, bounds: Iterable[Limit], count: int, made: int) -> None:
        for limit in bounds:
            left = self._under_way[limit.scope] - count
            if left:
                self._under_way[limit.scope] = left
            else:
                del self._under_way[limit.scope]
            if limit.scope in self._most:
                self._most[limit.scope] -= count - made

    def count(self, scope: PolicyScope) -> int:
        """How many topics an account, a tenant or a namespace has. Raises CoordinatorLoading."""
        rows, directory = self._shards.rows(), self._shards.directory()
        if scope.level == NAMESPACE:
            return rows.count(scope.id)
        tenants = [scope.id] if scope.level == TENANT else [one.id for one in directory.tenants(scope.account)]
        return sum(rows.count(one.id) for tenant in tenants for one in directory.namespaces(tenant))

    # -- how fast -----------------------------------------------------------------------------------

    def produced(self, account: str, topic: EntryName, size: int) -> int:
        """Count bytes that a topic was sent; how many ms their client is to wait before it goes on."""
        return self._count_bytes(PRODUCER_RATE, account, topic, size)

    def consumed(self, account: str, topic: EntryName, size: int) -> int:
        """Count bytes of a topic that go out; how many ms their client is to wait before it asks again."""
        return self._count_bytes(CONSUMER_RATE, account, topic, size)

    def _count_bytes(self, name: str, account: str, topic: EntryName, size: int) -> int:
        now_ms = self._clock.monotonic_ms()
        try:
            chain = self.chain(self.owner(account, topic))
        except DuramenError:
            return 0  # it is gone, or the policies are being read
        waits_ms = [self._rates.record((name, limit.scope), limit.value, size, now_ms) for limit in limits(name, chain)]
        return max(waits_ms, default=0)

    def owner(self, account: str, topic: EntryName) -> TopicOwner:
        """A topic by a name of it that was found. Raises TopicNotFound, CoordinatorLoading."""
        key = topic_key(self._shards.inventory_id, topic.id, self._shards.count)
        if topic.alias:
            return TopicOwner(self._shards.rows().place(key).namespace, key)
        return TopicOwner(self._shards.directory().namespace(account, topic.path.tenant, topic.path.namespace).id, key)

    def chain(self, owner: TopicOwner) -> list[tuple[PolicyScope, Any]]:
        """What is set on a topic, its namespace, its tenant and its account, in this order."""
        own = self._shards.rows().policies(owner.key)
        of_namespace = self._shards.policies().chain(self._shards.directory(), owner.namespace)
        return [(PolicyScope(TOPIC, topic=owner.key), own), *of_namespace]

    def used(self, name: str, scope: PolicyScope) -> int:
        """How much of a quota is used now."""
        if name == TOPIC_QUOTA:
            return self.count(scope)
        return round(self._rates.rate((name, scope), self._clock.monotonic_ms()))
