"""Admission of every request: resolve its names, ask the gate, then pass it to its handler or refuse it.

The requirements of a request are data beside its handler: `AdmissionRules`. Pure.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from duramen.base.deadlines import Deadline
from duramen.base.errors import DuramenError, NameNotResolved
from duramen.base.principal import Principal
from duramen.service.authorize import CLUSTER_NAME, Access, Authorizer, Gate, Operation, ResourceType
from duramen.service.broker import Broker
from duramen.service.cluster_topics import ClusterTopicResolver
from duramen.service.queue_topics import QueueTopics
from duramen.service.resolve import Found, ResolvedTopics, Resolver, TopicKey, TopicResolver

__all__ = [
    "LONGEST_RESOLUTION_MS",
    "NOTHING_NEEDED",
    "AdmissionRules",
    "Admitted",
    "Need",
    "Refuses",
    "Service",
    "Verdicts",
    "cluster",
]

LONGEST_RESOLUTION_MS: Final = 15_000
"""The wait for the names of a request that has no timeout of its own."""

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)

Verdicts = Mapping[tuple[Access, str], DuramenError]
"""The refused topics of a request, with the reasons."""


class Refuses(Enum):
    """The parts of a request to refuse if a requirement is not met."""

    REQUEST = "all of it"
    TOPIC = "the topic, as if it were not there, with another error"
    ENTRY = "what the handler says: it looks at the verdict"


@dataclass(frozen=True, slots=True)
class Need(Generic[S_contra]):
    """An access that a request needs to each resource that `names` finds in it.

    One of `instead` is as good, to the cluster or to any resource of its type. Topics may be named by their ids.
    """

    access: Access
    names: Callable[[S_contra], Iterable[TopicKey]]
    refuses: Refuses
    instead: tuple[Access, ...] = ()


def cluster(operation: Operation, refuses: Refuses = Refuses.REQUEST) -> Need[object]:
    """An access to the cluster."""
    return Need(Access(operation, ResourceType.CLUSTER), lambda _: (CLUSTER_NAME,), refuses)


class AdmissionRules(Generic[S]):
    """The requirements of a kind of request. A kind without any gives the reason in `open_because`."""

    __slots__ = ("needs", "only_reads", "open_because", "resolved", "within_ms")

    def __init__(
        self,
        *needs: Need[S],
        names: Callable[[S], Iterable[TopicKey]] | None = None,
        within_ms: Callable[[S], int] = lambda _: LONGEST_RESOLUTION_MS,
        open_because: str = "",
        only_reads: bool = False,
    ) -> None:
        """`names` are resolved besides those of the requirements; a request waits for them `within_ms`.

        A request that `only_reads` may name live topics; other requests are refused for them.
        """
        self.only_reads = only_reads
        self.needs = needs
        self.within_ms = within_ms
        self.open_because = open_because
        of_needs = [need.names for need in needs if need.refuses is Refuses.TOPIC]
        self.resolved = tuple(of_needs if names is None else [*of_needs, names])
        """The function that finds the topic names in a request."""


class Admitted(ResolvedTopics):
    """The admission of a request for its handler: resolved topics, and refused parts."""

    __slots__ = ("verdicts",)

    def __init__(self, found: Found, errors: Mapping[TopicKey, DuramenError], verdicts: Verdicts) -> None:
        super().__init__(found, errors)
        self.verdicts = verdicts

    @property
    def topics(self) -> ResolvedTopics:
        """The topics alone."""
        return self

    def refusal(self, access: Access, name: str) -> DuramenError | None:
        """The reason why the request may not have this access; None if it may."""
        return self.verdicts.get((access, name)) if self.verdicts else None

    def check(self, access: Access, name: str) -> None:
        """Raise the refusal, if there is one."""
        refusal = self.refusal(access, name)
        if refusal is not None:
            raise refusal


_NONE: Final[Mapping[TopicKey, DuramenError]] = {}
_NO_VERDICTS: Final[Verdicts] = {}
NOTHING_NEEDED: Final = Admitted({}, _NONE, _NO_VERDICTS)
"""The admission of a request without topic names, if nothing is refused."""

Done = Callable[[Admitted | DuramenError], None]


def _keys(rules: AdmissionRules[S], source: S) -> Collection[TopicKey]:
    """The names that are to be resolved, each once."""
    if len(rules.resolved) == 1:
        return dict.fromkeys(rules.resolved[0](source))
    return dict.fromkeys(key for names in rules.resolved for key in names(source))


class _Resolution(Generic[S]):
    """A request whose names are being resolved. It ends once: with the answer, at its deadline, or by `cancel`."""

    __slots__ = ("_done", "_keys", "_principal", "_rules", "_service", "_source", "deadline", "over")

    def __init__(
        self, service: "Service", principal: Principal, rules: AdmissionRules[S], source: S, keys: Collection[TopicKey],
        done: Done,
    ) -> None:  # fmt: skip
        self._service = service
        self._principal = principal
        self._rules = rules
        self._source = source
        self._keys = keys
        self._done = done
        self.over = False
        self.deadline: Deadline | None = None

    def found(self, found: Found) -> None:
        self._end(found, _NONE)

    def late(self) -> None:
        self._end({}, {key: NameNotResolved(f"the name {key} was not resolved in time") for key in self._keys})

    def cancel(self) -> None:
        self.over = True
        if self.deadline is not None:
            self.deadline.cancel()

    def _end(self, found: Found, errors: Mapping[TopicKey, DuramenError]) -> None:
        if not self.over:
            self.cancel()
            self._done(self._service.judge(self._principal, self._rules, self._source, found, errors))


def _resolver_of(broker: Broker, topics: QueueTopics) -> Resolver:
    return TopicResolver(broker.streams, topics) if broker.alone else ClusterTopicResolver(broker, topics)


class Service:
    """The interface of the doors before they handle a request."""

    def __init__(
        self, broker: Broker, *, resolver: Resolver | None = None, authorizer: Authorizer | None = None
    ) -> None:  # fmt: skip
        """Without a resolver names are those of streams and of queues, without an authorizer all is allowed."""
        queues = QueueTopics(broker)
        self.light_names = queues.names
        self.resolver = resolver or _resolver_of(broker, queues)
        self._later = broker.later
        self._gate = Gate(authorizer)
        all_known = self.resolver.all_known if self._gate.open else None
        self._read_only = broker.streams.read_only
        self._for_all: Final = None if all_known is None else Admitted(all_known, self._read_only, _NO_VERDICTS)
        self._for_readers: Final = None if all_known is None else Admitted(all_known, _NONE, _NO_VERDICTS)
        self.known_streams: Found = broker.streams.by_key if self._for_all is not None else {}
        """The streams that every request may name; none where requests are judged one by one."""

    @property
    def for_all(self) -> Admitted | None:
        """The admission of every request if nothing is refused and no name has to be awaited; otherwise None."""
        return None if self.resolver.all_known is None else self._for_all

    @property
    def for_readers(self) -> Admitted | None:
        """The same for requests that only read, which may name live topics."""
        return None if self.resolver.all_known is None else self._for_readers

    def _refused(
        self, rules: AdmissionRules[S], errors: Mapping[TopicKey, DuramenError]
    ) -> Mapping[TopicKey, DuramenError]:
        return errors if rules.only_reads or not self._read_only else {**self._read_only, **errors}

    def admit_now(self, principal: Principal, rules: AdmissionRules[S], source: S) -> Admitted | DuramenError | None:
        """The admission of a request, or the reason of its refusal; None if its names have to be awaited.

        This is the usual, short path; the other one is `admit`.
        """
        for_all = self.for_readers if rules.only_reads else self.for_all
        if for_all is not None:
            return for_all if rules.resolved else NOTHING_NEEDED
        if not rules.resolved:
            return NOTHING_NEEDED if self._gate.open else self.judge(principal, rules, source, {}, _NONE)
        found = self.resolver.known(_keys(rules, source))
        if found is None:
            return None
        if self._gate.open:
            return Admitted(found, self._refused(rules, _NONE), _NO_VERDICTS)
        return self.judge(principal, rules, source, found, _NONE)

    def admit(self, principal: Principal, rules: AdmissionRules[S], source: S, done: Done) -> Callable[[], None] | None:
        """Resolve the names of a request and check it: `done` gets the admission, or the reason of the refusal.

        Returns None if `done` was called already, otherwise a function that cancels it.
        """
        verdict = self.admit_now(principal, rules, source)
        if verdict is not None:
            done(verdict)
            return None
        keys = _keys(rules, source)
        resolution = _Resolution(self, principal, rules, source, keys, done)
        self.resolver.resolve(keys, resolution.found)
        if resolution.over:
            return None
        resolution.deadline = self._later(max(0, rules.within_ms(source)), resolution.late)
        return resolution.cancel

    def judge(
        self,
        principal: Principal,
        rules: AdmissionRules[S],
        source: S,
        found: Found,
        errors: Mapping[TopicKey, DuramenError],
    ) -> Admitted | DuramenError:
        """Ask the gate for all that the request needs."""
        errors = self._refused(rules, errors)
        if self._gate.open:
            return Admitted(found, errors, _NO_VERDICTS)
        refused: dict[TopicKey, DuramenError] = {}
        verdicts: dict[tuple[Access, str], DuramenError] = {}
        for need in rules.needs:
            if any(self._refusal(principal, access, None) is None for access in need.instead):
                continue
            for key in need.names(source):
                name = key if isinstance(key, str) else found[key].name if key in found else None
                refusal = None if name is None else self._refusal(principal, need.access, name)
                if refusal is None or name is None:
                    continue
                if need.refuses is Refuses.REQUEST:
                    return refusal
                if need.refuses is Refuses.TOPIC:
                    refused[key] = refusal
                verdicts[need.access, name] = refusal
        return Admitted(found, {**errors, **refused}, verdicts)

    def _refusal(self, principal: Principal, access: Access, name: str | None) -> DuramenError | None:
        if access.resource_type is ResourceType.CLUSTER:
            name = CLUSTER_NAME
        return self._gate.refusal(principal, access, name)
