"""The errors that Duramen raises on purpose, for `except`. All are `DuramenError`s with a stable `id`.

`safe` says what has become of data and whether to repeat is safe, `remedy` what to do.

>>> try:
...     client.streams.describe("missing")
... except duramen.errors.StreamNotFound as error:
...     print(error.id)
stream-not-found
"""

from duramen.base.errors import (
    BatchCorrupt,
    BatchInvalid,
    BatchTooLarge,
    ClientClosed,
    ConfigInvalid,
    DeletionRefused,
    DependencyMissing,
    DuramenError,
    GroupFull,
    GroupIdInvalid,
    GroupNotEmpty,
    GroupNotFound,
    InconsistentProtocol,
    LogDamaged,
    NameInvalid,
    NodeStopping,
    OffsetOutOfRange,
    OptionInvalid,
    OutOfOrderSequence,
    PartitionsInvalid,
    ProducerFenced,
    RecordsLost,
    RequestInvalid,
    RequestTimedOut,
    ServerUnreachable,
    SettingInvalid,
    StorageFailed,
    StorageFull,
    StreamDiffers,
    StreamExists,
    StreamNotFound,
    SubjectInvalid,
    TimestampInvalid,
    UnsupportedFeature,
)

__all__ = [
    "BatchCorrupt",
    "BatchInvalid",
    "BatchTooLarge",
    "ClientClosed",
    "ConfigInvalid",
    "DeletionRefused",
    "DependencyMissing",
    "DuramenError",
    "GroupFull",
    "GroupIdInvalid",
    "GroupNotEmpty",
    "GroupNotFound",
    "InconsistentProtocol",
    "LogDamaged",
    "NameInvalid",
    "NodeStopping",
    "OffsetOutOfRange",
    "OptionInvalid",
    "OutOfOrderSequence",
    "PartitionsInvalid",
    "ProducerFenced",
    "RecordsLost",
    "RequestInvalid",
    "RequestTimedOut",
    "ServerUnreachable",
    "SettingInvalid",
    "StorageFailed",
    "StorageFull",
    "StreamDiffers",
    "StreamExists",
    "StreamNotFound",
    "SubjectInvalid",
    "TimestampInvalid",
    "UnsupportedFeature",
]
