"""A consumer of a share group, below every client: each request and its answer as a test wants them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from tests.raw import connect, stream_id

from duramen.codec.batch import batches, records
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

__all__ = ["ACCEPT", "GAP", "REJECT", "RELEASE", "RENEW", "Given", "Got", "RawShareConsumer"]

_WAIT_S: Final = 60.0

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Given(NamedTuple):
    """What is said of the offsets `first` to `last` of a partition."""

    first: int
    last: int
    types: Sequence[int]
    partition: int = 0


class Got(NamedTuple):
    """A record that was acquired."""

    partition: int
    offset: int
    deliveries: int
    value: bytes


class RawShareConsumer:
    """A member of a share group with one share session; it reads partitions of one stream."""

    def __init__(self, node: NodeProcess, group: str, stream: str, member_id: str, client_id: str = "raw") -> None:
        self.connection = connect(node, client_id)
        self.group, self.stream, self.member_id = group, stream, member_id
        self.topic_id: UUID = stream_id(self.connection, stream)
        self.epoch = 0
        self.session = 0
        self.last: Message = {}

    # -- the group ----------------------------------------------------------------------------------

    def beat(self, *, epoch: int | None = None, topics: Sequence[str] | None = None) -> Message:
        """A heartbeat; the member is in the epoch that is answered."""
        answer = self.connection.request(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            {
                "group_id": self.group,
                "member_id": self.member_id,
                "member_epoch": self.epoch if epoch is None else epoch,
                "subscribed_topic_names": topics,
            },
        )
        if not answer["error_code"]:
            self.epoch = answer["member_epoch"]
        return answer

    def join(self) -> list[int]:
        """Join; the partitions that it gets."""
        answer = self.beat(epoch=0, topics=[self.stream])
        assert answer["error_code"] == 0, answer["error_message"]
        return [index for topic in answer["assignment"]["topic_partitions"] for index in topic["partitions"]]

    def configure(self, **configs: str) -> None:
        """Set configs of the group; dots are underscores."""
        entries = [
            {"name": name.replace("_", "."), "config_operation": 0, "value": value} for name, value in configs.items()
        ]
        answer = self.connection.request(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            {"resources": [{"resource_type": 32, "resource_name": self.group, "configs": entries}]},
        )
        assert answer["responses"][0]["error_code"] == 0, answer["responses"][0]["error_message"]

    # -- the session --------------------------------------------------------------------------------

    def fetch(
        self, *given: Given, partitions: Sequence[int] = (0,), wait_ms: int = 0, most: int = 500, **fields: Any
    ) -> list[Got]:
        """Fetch, with acknowledgements; the first of a session names the partitions."""
        topics = self._topics(given, partitions if self.session == 0 else ())
        self.last = self._request(
            ApiKey.SHARE_FETCH,
            {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": most, "batch_size": 500}
            | fields,
            topics,
            wait_ms,
        )
        assert self.last["error_code"] == 0, self.last
        return [got for topic in self.last["responses"] for partition in topic["partitions"] for got in _got(partition)]

    def begin_fetch(self, *, wait_ms: int) -> int:
        """Send a fetch; `end_fetch` has what comes of it."""
        message = {
            "group_id": self.group, "member_id": self.member_id, "share_session_epoch": self.session,
            "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500,
        }  # fmt: skip
        version = self.connection.version(ApiKey.SHARE_FETCH)
        sent = self.connection.send(ApiKey.SHARE_FETCH, [REQUESTS[ApiKey.SHARE_FETCH].encode(version, message)])
        self.session += 1
        return sent

    def end_fetch(self, sent: int) -> list[Got]:
        """What a fetch that was sent has acquired."""
        version, frame, start = self.connection.receive(sent, wait_s=_WAIT_S)
        self.last = RESPONSES[ApiKey.SHARE_FETCH].decode(version, frame, start)
        assert self.last["error_code"] == 0, self.last
        return [got for topic in self.last["responses"] for partition in topic["partitions"] for got in _got(partition)]

    def refused(self, api: ApiKey, *given: Given, **fields: Any) -> int:
        """The error code of a request as a whole."""
        wanted = {"max_bytes": 1 << 20, "max_records": 500} if api is ApiKey.SHARE_FETCH else {}
        code: int = self._request(api, wanted | fields, self._topics(given, ()), 0)["error_code"]
        return code

    def say(self, *given: Given, **fields: Any) -> dict[int, int]:
        """Acknowledge; the error codes by partition."""
        self.last = self._request(ApiKey.SHARE_ACKNOWLEDGE, fields, self._topics(given, ()), 0)
        assert self.last["error_code"] == 0, self.last
        return {
            partition["partition_index"]: partition["error_code"]
            for topic in self.last["responses"]
            for partition in topic["partitions"]
        }

    def _request(self, api: ApiKey, fields: Mapping[str, Any], topics: list[Message], wait_ms: int) -> Message:
        epoch = fields.get("share_session_epoch", self.session)
        message = {
            "group_id": self.group, "member_id": self.member_id, "share_session_epoch": epoch, "topics": topics,
            **fields,
        }  # fmt: skip
        answer = self.connection.request(api, message, wait_s=wait_ms / 1000)
        if not answer["error_code"]:
            self.session = 0 if epoch == -1 else epoch + 1
        return answer

    def _topics(self, given: Sequence[Given], partitions: Sequence[int]) -> list[Message]:
        said: dict[int, list[Message]] = {index: [] for index in partitions}
        for first, last, types, index in given:
            said.setdefault(index, []).append(
                {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            )
        return [
            {
                "topic_id": self.topic_id,
                "partitions": [
                    {"partition_index": index, "acknowledgement_batches": batches} for index, batches in said.items()
                ],
            }
        ] if said else []  # fmt: skip

    def leave(self) -> None:
        """End the session and leave the group."""
        if self.session:
            self.say(share_session_epoch=-1)
        self.beat(epoch=-1)
        self.connection.close()


def _got(partition: Message) -> list[Got]:
    data: bytes = partition["records"]
    values = {
        record.offset: record.value or b""
        for at, head in batches(data)
        for record in records(data[at : at + head.size])
    }
    return [
        Got(partition["partition_index"], offset, acquired["delivery_count"], values[offset])
        for acquired in partition["acquired_records"]
        for offset in range(acquired["first_offset"], acquired["last_offset"] + 1)
        if offset in values
    ]
