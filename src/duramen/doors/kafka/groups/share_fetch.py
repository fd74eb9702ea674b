"""ShareFetch and ShareAcknowledge (KIP-932), with lock renewal (KIP-1222) and strict limits (KIP-1206)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError, RequestInvalid, ShareSessionEpochInvalid, StreamNotFound
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.leaders import LeaderHint
from duramen.codec.kafka.schema import Message
from duramen.coordinators.share.fetch import ShareFetched, ShareLimits
from duramen.coordinators.share.partition import Acknowledged
from duramen.doors.kafka.request.brokers import SAYS_LEADER, endpoints_of, leader_of
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code, share_error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.doors.kafka.request.share_sessions import CLOSING, OPENING, ShareSession
from duramen.groups.share_records import ShareKey
from duramen.service.light_topics import LastingId
from duramen.service.resolve import ResolvedTopics, TopicKey

__all__ = ["handle_share_acknowledge", "handle_share_fetch", "topic_ids"]

_RENEW: Final = 4
_STRICT: Final = 1
_NOBODY: Final = LeaderHint(-1, -1)


def topic_ids(needs: ApiNeeds) -> Sequence[TopicKey]:
    """The topics that the request names, and those of its session."""
    request = needs.request
    named = [topic["topic_id"] for topic in request["topics"]]
    return [*named, *needs.context.shares.topics(request["group_id"], request["member_id"])]


class _Said(NamedTuple):
    """The acknowledgements of a share partition, which is named as its state is stored."""

    stored: ShareKey
    batches: Sequence[Acknowledged]


Spoken = Mapping[ShareKey, _Said]
"""By share partition, as the client names it."""

Results = Mapping[ShareKey, DuramenError | None]


def handle_share_fetch(context: Context, exchange: Exchange) -> None:
    """Process the consumer's acknowledgements, and acquire more records for it, waiting if there are none."""
    request = exchange.message()
    try:
        _check(request)
        spoken, invalid = _spoken(context, request, exchange.admitted.topics)
        if (spoken or invalid) and request["share_session_epoch"] == OPENING:
            raise RequestInvalid("a share session does not begin with acknowledgements")
        session = _take(context, exchange, request)
    except DuramenError as error:
        _refuse(exchange, error)
        return
    _ShareFetch(context, exchange, request, session, invalid).begin(spoken)


def handle_share_acknowledge(context: Context, exchange: Exchange) -> None:
    """Process the consumer's acknowledgements; the response comes once they are durable."""
    request = exchange.message()
    try:
        _check(request)
        if request["share_session_epoch"] == OPENING:
            raise ShareSessionEpochInvalid("a share session begins with a fetch")
        spoken, invalid = _spoken(context, request, exchange.admitted.topics)
        session = context.shares.take(
            request["group_id"], request["member_id"], request["share_session_epoch"], exchange.channel
        )
    except DuramenError as error:
        _refuse(exchange, error)
        return

    topics = exchange.admitted.topics

    def acknowledged(results: Results) -> None:
        results = {**results, **invalid}
        _after_closing(context, request, session, lambda: exchange.reply(answer(results)))

    def answer(results: Results) -> Message:
        leaders = _leaders(context, topics, {key: [error] for key, error in results.items()})
        return {
            "acquisition_lock_timeout_ms": context.broker.sharing.config(session.group).lock_ms,
            "responses": _by_topic(
                results,
                lambda key: {
                    "error_code": _code(topics, key, results[key]),
                    "error_message": _text(results[key]),
                    **_led(leaders, key),
                },
            ),
            "node_endpoints": _endpoints(context, leaders),
        }

    _acknowledge(context, session, spoken, acknowledged)


def _refuse(exchange: Exchange, error: DuramenError) -> None:
    exchange.reply({"error_code": error_code(error), "error_message": str(error)})


def _check(request: Message) -> None:
    if not request["group_id"] or not request["member_id"]:
        raise RequestInvalid("a share session is that of a member of a group: both need an id")


def _take(context: Context, exchange: Exchange, request: Message) -> ShareSession:
    group, epoch = request["group_id"], request["share_session_epoch"]
    session = context.shares.take(group, request["member_id"], epoch, exchange.channel)
    if epoch != CLOSING:
        context.shares.change(
            session,
            {
                key: _stored(exchange.admitted.topics, key)
                for topic in request["topics"]
                if _refusal(exchange.admitted.topics, topic["topic_id"]) is None
                for partition in topic["partitions"]
                for key in [ShareKey(group, topic["topic_id"], partition["partition_index"])]
            },
            [
                ShareKey(group, topic["topic_id"], index)
                for topic in request["forgotten_topics_data"]
                for index in topic["partitions"]
            ],
        )
    return session


# -- acknowledgements ---------------------------------------------------------------------------------


def _spoken(context: Context, request: Message, named: ResolvedTopics) -> tuple[Spoken, dict[ShareKey, DuramenError]]:
    """The acknowledgements for each share partition, and the invalid ones."""
    group = request["group_id"]
    renews = request["is_renew_ack"] and context.broker.sharing.config(group).renews
    session = context.shares.find(group, request["member_id"])
    spoken: dict[ShareKey, _Said] = {}
    invalid: dict[ShareKey, DuramenError] = {}
    for topic in request["topics"]:
        for partition in topic["partitions"]:
            key = ShareKey(group, topic["topic_id"], partition["partition_index"])
            refusal = _refusal(named, topic["topic_id"])
            if refusal is not None:
                invalid[key] = refusal
                continue
            batches = [
                Acknowledged(batch["first_offset"], batch["last_offset"], batch["acknowledge_types"])
                for batch in partition["acknowledgement_batches"]
            ]
            try:
                _check_batches(batches, _RENEW if renews else _RENEW - 1)
            except RequestInvalid as error:
                invalid[key] = error
            else:
                stored = _stored(named, key, session) if batches else None
                if stored is not None:
                    spoken[key] = _Said(stored, batches)
                elif batches:
                    invalid[key] = StreamNotFound("no such topic")
    return spoken, invalid


def _refusal(named: ResolvedTopics, topic_id: UUID) -> DuramenError | None:
    """Why nothing may be done with a topic; None also if it is missing: then the partition has the error."""
    exists = named.find(topic_id) is not None or named.light(topic_id) is not None
    error = None if exists else named.error(topic_id)
    return None if isinstance(error, StreamNotFound) else error


def _stored(named: ResolvedTopics, key: ShareKey, session: ShareSession | None = None) -> ShareKey | None:
    """The share partition as its state is stored; None if there is no such topic.

    With the session also a topic of the inventory that had this name when the session began.
    """
    light = named.light(key.topic_id)
    if light is not None:
        return key._replace(topic_id=light.shared_as)
    if named.find(key.topic_id) is not None:
        return key
    stored = None if session is None else session.partitions.get(key)
    if stored is None or stored == key or named.light(LastingId(stored.topic_id.hex)) is None:
        return None
    return stored


def _check_batches(batches: Sequence[Acknowledged], last_type: int) -> None:
    before = -1
    for first, last, types in batches:
        if not before < first <= last:
            raise RequestInvalid(f"acknowledgements of {first} to {last} do not come in order")
        if len(types) not in (1, last - first + 1):
            raise RequestInvalid(f"{len(types)} acknowledge types do not fit offsets {first} to {last}")
        if not all(0 <= type_ <= last_type for type_ in types):
            raise RequestInvalid(f"acknowledge types are 0 to {last_type}")
        before = last


def _acknowledge(context: Context, session: ShareSession, spoken: Spoken, done: Callable[[Results], None]) -> None:
    results: dict[ShareKey, DuramenError | None] = {}
    parts = Countdown(partial(done, results), len(spoken) + 1)

    def finish(key: ShareKey, error: DuramenError | None) -> None:
        results[key] = error
        parts.count_down()

    for key, (stored, batches) in spoken.items():
        context.broker.sharing.acknowledge(stored, session.member_id, batches, partial(finish, key))
    parts.count_down()


def _after_closing(context: Context, request: Message, session: ShareSession, reply: Callable[[], None]) -> None:
    """End the session if the request says so, release acquired records, and respond."""
    if request["share_session_epoch"] == CLOSING:
        context.shares.close(session)
        context.broker.sharing.release(session.member_id, session.stored, reply)
    else:
        reply()


# -- fetching -----------------------------------------------------------------------------------------


class _ShareFetch:
    """A share fetch under way: the answer goes out once acknowledgements are durable and the fetch is over."""

    def __init__(
        self,
        context: Context,
        exchange: Exchange,
        request: Message,
        session: ShareSession,
        invalid: Mapping[ShareKey, DuramenError],
    ) -> None:
        self._context = context
        self._exchange = exchange
        self._request = request
        self._session = session
        self._results: dict[ShareKey, DuramenError | None] = dict(invalid)
        self._fetched: dict[ShareKey, ShareFetched] = {}
        self._fetching = False
        self._left = 2

    def begin(self, spoken: Spoken) -> None:
        """Acknowledge, and fetch at the same time: released records may be acquired again at once."""
        _acknowledge(self._context, self._session, spoken, self._acknowledged)
        request, session = self._request, self._session
        largest = self._context.broker.quotas.largest_answer(self._exchange.client_id)
        most_bytes = request["max_bytes"] if largest is None else min(request["max_bytes"], max(1, largest))
        limits = ShareLimits(
            request["min_bytes"], most_bytes, request["max_wait_ms"], request["max_records"],
            max(1, request["batch_size"]), request["share_acquire_mode"] == _STRICT,
        )  # fmt: skip
        only_says = request["is_renew_ack"] or request["share_session_epoch"] == CLOSING
        if only_says or limits.max_bytes <= 0 or limits.max_records <= 0:
            self._finish()
            return
        wanted = self._wanted()
        if not wanted:
            self._finish()
            return
        if self._fetched:  # errors, which do not wait for records
            limits = limits._replace(max_wait_ms=0)
        found, self._fetching = partial(self._found, [*wanted]), True
        fetcher = self._context.broker.sharing.fetch([*wanted.values()], session.member_id, limits, found)
        if self._fetching:
            session.fetcher = fetcher

    def _wanted(self) -> dict[ShareKey, ShareKey]:
        """The partitions of the session to read; those of topics that are gone or refused get their error."""
        topics, session, wanted = self._exchange.admitted.topics, self._session, dict[ShareKey, ShareKey]()
        for key in session.rotated():
            stored = session.partitions[key]
            if stored is None:
                stored = session.partitions[key] = _stored(topics, key)
            elif stored != key and topics.light(key.topic_id) is None:
                stored = None
            if stored is not None:
                wanted[key] = stored
            else:
                error = _refusal(topics, key.topic_id) or StreamNotFound("no such topic")
                self._fetched[key] = ShareFetched(error=error)
        return wanted

    def _acknowledged(self, results: Results) -> None:
        self._results.update(results)
        self._finish()

    def _found(self, keys: Sequence[ShareKey], fetched: Sequence[ShareFetched]) -> None:
        self._session.fetcher, self._fetching = None, False
        self._fetched.update(zip(keys, fetched, strict=True))
        self._finish()

    def _finish(self) -> None:
        self._left -= 1
        if not self._left:
            _after_closing(self._context, self._request, self._session, self._reply)

    def _reply(self) -> None:
        exchange = self._exchange
        sizes = {key: len(found.taken.records) for key, found in self._fetched.items() if found.taken is not None}
        size = sum(sizes.values())
        # Acquired records are sent all the same: they are the consumer's now.
        exchange.throttle_ms = self._context.broker.given(exchange.client_id, size) if size else 0
        for key, of_topic in sizes.items():
            light = exchange.admitted.topics.light(key.topic_id)
            if light is not None:
                exchange.throttle_ms = max(exchange.throttle_ms, light.given(of_topic))
        whole = self._request["share_session_epoch"] == OPENING
        told = [key for key, found in self._fetched.items() if whole or found.taken is not None or found.error]
        keys = list(dict.fromkeys([*self._results, *told]))
        topics = exchange.admitted.topics
        leaders = _leaders(self._context, topics, {key: self._errors(key) for key in keys})
        exchange.reply(
            {
                "throttle_time_ms": exchange.throttle_ms,
                "acquisition_lock_timeout_ms": self._context.broker.sharing.config(self._session.group).lock_ms,
                "responses": _by_topic(keys, lambda key: self._partition(key) | _led(leaders, key)),
                "node_endpoints": _endpoints(self._context, leaders),
            }
        )

    def _errors(self, key: ShareKey) -> list[DuramenError | None]:
        return [self._fetched.get(key, ShareFetched()).error, self._results.get(key)]

    def _partition(self, key: ShareKey) -> Message:
        found, said = self._fetched.get(key, ShareFetched()), self._results.get(key)
        topics = self._exchange.admitted.topics
        taken = found.taken
        answer: dict[str, Any] = {
            "error_code": _code(topics, key, found.error),
            "error_message": _text(found.error),
            "acknowledge_error_code": _code(topics, key, said),
            "acknowledge_error_message": _text(said),
        }
        if taken is not None:
            answer["records"] = taken.records
            answer["acquired_records"] = [
                {"first_offset": first, "last_offset": last, "delivery_count": deliveries}
                for first, last, deliveries in taken.acquired
            ]
        return answer


def _code(topics: ResolvedTopics, key: ShareKey, error: DuramenError | None) -> ErrorCode:
    stream = topics.find(key.topic_id)
    if stream is not None:
        gone = stream.deleted
    else:
        gone = topics.light(key.topic_id) is None and _refusal(topics, key.topic_id) is None
    if error is not None and gone:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return share_error_code(error)


def _leaders(
    context: Context, topics: ResolvedTopics, errors: Mapping[ShareKey, Sequence[DuramenError | None]]
) -> dict[ShareKey, LeaderHint]:
    """The leaders of partitions that this node does not lead (like KIP-951 for other fetches)."""
    leaders = {}
    for key, told in errors.items():
        stream, light = topics.find(key.topic_id), topics.light(key.topic_id)
        elsewhere = any(_code(topics, key, error) in SAYS_LEADER for error in told)
        partitions = stream.partitions if stream is not None else [] if light is None else [light.partition]
        if elsewhere and key.partition < len(partitions):
            leaders[key] = leader_of(context, partitions[key.partition])
    return leaders


def _led(leaders: Mapping[ShareKey, LeaderHint], key: ShareKey) -> Message:
    node_id, leader_epoch = leaders.get(key, _NOBODY)
    return {"current_leader": {"leader_id": node_id, "leader_epoch": leader_epoch}}


def _endpoints(context: Context, leaders: Mapping[ShareKey, LeaderHint]) -> list[Message]:
    return [dict(endpoint._asdict()) for endpoint in endpoints_of(context, leaders.values())]


def _text(error: DuramenError | None) -> str | None:
    return None if error is None else str(error)


def _by_topic(keys: Iterable[ShareKey], partition: Callable[[ShareKey], Message]) -> list[Message]:
    topics: dict[UUID, list[Message]] = {}
    for key in keys:
        answer = {"partition_index": key.partition, **partition(key)}
        topics.setdefault(key.topic_id, []).append(answer)
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]
