"""Everything that can go wrong and that a caller may have to tell apart.

One class a situation; `id` is stable and is what the doors, the docs and the command line name. The doors
map these to numbers of their own protocol. Each class says in its docstring what happened, in `safe` what has
become of data and whether to repeat is safe, and in `remedy` what to do.
"""

from typing import ClassVar

__all__ = [
    "BatchCorrupt",
    "BatchInvalid",
    "BatchTooLarge",
    "BodyTooLarge",
    "BodyTypeUnsupported",
    "ConfigInvalid",
    "CoordinatorLoading",
    "DemoFailed",
    "DependencyMissing",
    "DirectoryUnusable",
    "DuplicateTableFull",
    "DuramenError",
    "ExpectedStreamDiffers",
    "FencedInstance",
    "FencedLeaderEpoch",
    "GroupFull",
    "GroupIdInvalid",
    "GroupNotEmpty",
    "GroupNotFound",
    "HostRefused",
    "IllegalGeneration",
    "InconsistentProtocol",
    "InputInvalid",
    "LogDamaged",
    "MemberIdRequired",
    "MethodNotAllowed",
    "NameInvalid",
    "NatsProtocolInvalid",
    "NodeBusy",
    "NodeStarting",
    "NodeStopping",
    "OffsetMetadataTooLarge",
    "OffsetOutOfRange",
    "OptionInvalid",
    "OriginRefused",
    "OutOfOrderSequence",
    "PartitionsInvalid",
    "PathNotFound",
    "ProducerFenced",
    "RebalanceInProgress",
    "RecordsLost",
    "RequestInvalid",
    "RequestTimedOut",
    "ServerUnreachable",
    "SessionTimeoutInvalid",
    "SettingInvalid",
    "StorageFailed",
    "StorageFull",
    "StreamDiffers",
    "StreamExists",
    "StreamNotFound",
    "SubjectInvalid",
    "TimestampInvalid",
    "UnknownLeaderEpoch",
    "UnknownMember",
    "UnsupportedFeature",
]


class DuramenError(Exception):
    """Base of every error that Duramen raises on purpose; the message is one line for people."""

    id: ClassVar[str] = "error"
    safe: ClassVar[str] = ""
    remedy: ClassVar[str] = ""


class SettingInvalid(DuramenError):
    """A setting has an unknown name or a value that does not fit."""

    id = "setting-invalid"


class OptionInvalid(DuramenError):
    """An option of a Spark source or sink has an unknown name or a value that does not fit."""

    id = "option-invalid"


class DependencyMissing(DuramenError):
    """Something that Duramen does not bring itself is missing or too old; the message says what to install."""

    id = "dependency-missing"


class DemoFailed(DuramenError):
    """A step of `make demo` did not come to its end, or what came out is not what went in."""

    id = "demo-failed"


class DirectoryUnusable(DuramenError):
    """The data directory is held by another node, is not ours, is too new, or cannot be written."""

    id = "directory-unusable"


class ServerUnreachable(DuramenError):
    """No node answered at an address within the time allowed."""

    id = "server-unreachable"


class RequestTimedOut(DuramenError):
    """What was asked for did not happen in the time allowed; it may still happen."""

    id = "request-timed-out"


class RequestInvalid(DuramenError):
    """A request contradicts itself or the protocol."""

    id = "request-invalid"


class InputInvalid(DuramenError):
    """What `duramen produce` read is no record in the format named; the message says which line, and why."""

    id = "input-invalid"
    safe = "The records of the lines before it are written; that line and those after it are not."
    remedy = "Mend the line and repeat from it, or choose another `--format`."


class NatsProtocolInvalid(DuramenError):
    """What answers at the NATS address does not speak NATS's protocol, or not a version that has headers."""

    id = "nats-protocol-invalid"


class UnsupportedFeature(DuramenError):
    """A request needs something that this version does not do."""

    id = "unsupported-feature"


class NodeStopping(DuramenError):
    """The node is stopping and takes no new work."""

    id = "node-stopping"


class StorageFull(DuramenError):
    """The disk is full: nothing was written; reads go on, and writes again when there is space."""

    id = "storage-full"


class StorageFailed(DuramenError):
    """A write or sync failed: this node, or this log, takes no writes until it is restarted."""

    id = "storage-failed"


class LogDamaged(DuramenError):
    """The records asked for were damaged on disk; what lies around them can be read."""

    id = "log-damaged"


class BatchCorrupt(DuramenError):
    """A record batch does not match its CRC, or its fields contradict each other."""

    id = "batch-corrupt"


class BatchInvalid(DuramenError):
    """A record batch is sound but is not allowed here."""

    id = "batch-invalid"


class BatchTooLarge(DuramenError):
    """A record batch is larger than max.message.bytes of its stream."""

    id = "batch-too-large"


class TimestampInvalid(DuramenError):
    """A record's timestamp is further from the broker's clock than the stream allows."""

    id = "timestamp-invalid"


class DuplicateTableFull(DuramenError):
    """No memory is left to remember another Nats-Msg-Id: storing the message would let a repetition in unnoticed."""

    id = "duplicate-table-full"


class ExpectedStreamDiffers(DuramenError):
    """A NATS publisher expects to be answered by another stream than those that its subject reaches."""

    id = "expected-stream-differs"


class OffsetOutOfRange(DuramenError):
    """No record at that offset: below the log start or beyond the end."""

    id = "offset-out-of-range"


class RecordsLost(DuramenError):
    """Records that a reader should have read are gone; the message says which and why."""

    id = "records-lost"


class OutOfOrderSequence(DuramenError):
    """An idempotent producer's sequence does not follow the last one."""

    id = "out-of-order-sequence"


class ProducerFenced(DuramenError):
    """A newer epoch of this producer id has written."""

    id = "producer-fenced"


class FencedLeaderEpoch(DuramenError):
    """The client knows an older leader epoch than the log."""

    id = "fenced-leader-epoch"


class UnknownLeaderEpoch(DuramenError):
    """The client knows a newer leader epoch than the log."""

    id = "unknown-leader-epoch"


class StreamNotFound(DuramenError):
    """No stream, or no partition of it, with that name or id."""

    id = "stream-not-found"


class StreamExists(DuramenError):
    """A stream with that name exists."""

    id = "stream-exists"


class StreamDiffers(StreamExists):
    """A stream with that name exists and is defined otherwise; the message says how."""

    id = "stream-differs"


class NameInvalid(DuramenError):
    """A stream's name is empty, too long, or has characters that Kafka does not allow."""

    id = "name-invalid"


class SubjectInvalid(DuramenError):
    """A NATS subject is malformed or may not be bound."""

    id = "subject-invalid"


class PartitionsInvalid(DuramenError):
    """A count of partitions that cannot be."""

    id = "partitions-invalid"


class ConfigInvalid(DuramenError):
    """A stream's config has an unknown name or a value that does not fit."""

    id = "config-invalid"


class GroupIdInvalid(DuramenError):
    """A consumer group's id is empty where it must not be."""

    id = "group-id-invalid"


class GroupNotFound(DuramenError):
    """No consumer group with that id."""

    id = "group-not-found"


class GroupNotEmpty(DuramenError):
    """The consumer group still has members."""

    id = "group-not-empty"


class GroupFull(DuramenError):
    """The consumer group has group.max.size members."""

    id = "group-full"


class CoordinatorLoading(DuramenError):
    """The group's state is still being read; ask again."""

    id = "coordinator-loading"


class UnknownMember(DuramenError):
    """The group does not know this member id."""

    id = "unknown-member"


class MemberIdRequired(DuramenError):
    """A new member must join again with the id that it was given."""

    id = "member-id-required"

    def __init__(self, member_id: str) -> None:
        super().__init__("join again with the member id given")
        self.member_id = member_id


class FencedInstance(DuramenError):
    """Another member has taken this group.instance.id over."""

    id = "fenced-instance"


class IllegalGeneration(DuramenError):
    """The member speaks of another generation of the group."""

    id = "illegal-generation"


class RebalanceInProgress(DuramenError):
    """The group is rebalancing: the member has to join again."""

    id = "rebalance-in-progress"


class InconsistentProtocol(DuramenError):
    """The member shares no assignment protocol with the group."""

    id = "inconsistent-protocol"


class SessionTimeoutInvalid(DuramenError):
    """A session timeout outside group.min.session.timeout.ms to group.max.session.timeout.ms."""

    id = "session-timeout-invalid"


class OffsetMetadataTooLarge(DuramenError):
    """A committed offset's metadata is longer than offset.metadata.max.bytes."""

    id = "offset-metadata-too-large"


class NodeStarting(DuramenError):
    """The node has not come to taking requests yet, or takes none any more."""

    id = "node-starting"
    safe = "Nothing was done; asking again is safe."
    remedy = "Wait until `/readyz` answers 200; while it does not, it says why."


class NodeBusy(DuramenError):
    """The requests under way take all the memory, or all the connections, that the HTTP door has for them."""

    id = "node-busy"
    safe = "Nothing was done; asking again is safe."
    remedy = "Ask again a second later, with fewer requests at a time."


class PathNotFound(DuramenError):
    """The HTTP door has nothing at that path."""

    id = "path-not-found"
    safe = "Nothing was done."
    remedy = "Look the path up in docs/http-api.md, or in `/v1/openapi.json`."


class MethodNotAllowed(DuramenError):
    """There is something at that path of the HTTP door, but it does not take that method."""

    id = "method-not-allowed"
    safe = "Nothing was done."
    remedy = "Use one of the methods that the header `Allow` of the answer names."


class BodyTooLarge(DuramenError):
    """The body of an HTTP request is larger than its path takes."""

    id = "body-too-large"
    safe = "Nothing was done."
    remedy = "Send fewer records in a request."


class BodyTypeUnsupported(DuramenError):
    """The body of an HTTP request does not say that it is JSON."""

    id = "body-type-unsupported"
    safe = "Nothing was done."
    remedy = "Send the header `Content-Type: application/json`, as `curl --json` does."


class HostRefused(DuramenError):
    """An HTTP request names a host that is not the node: a web page may have sent it (DNS rebinding)."""

    id = "host-refused"
    safe = "Nothing was done."
    remedy = "Ask by address or as `localhost`, or add the name to `http.allowed.hosts`."


class OriginRefused(DuramenError):
    """An HTTP request was sent by a web page that does not come from the node."""

    id = "origin-refused"
    safe = "Nothing was done."
    remedy = "Let the page's own server ask the node instead of the browser."
