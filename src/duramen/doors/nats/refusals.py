"""JetStream's error for each domain error. Pure."""

from collections.abc import Mapping
from typing import Final

from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.codec import jetstream
from duramen.codec.jetstream import ApiError

__all__ = ["api_error"]

_API_ERRORS: Final[Mapping[type[DuramenError], ApiError]] = {
    errors.BatchInvalid: jetstream.BAD_REQUEST,
    errors.BatchTooLarge: jetstream.MESSAGE_TOO_LARGE,
    errors.BytesQuotaExceeded: jetstream.STORAGE_FULL,
    errors.DuplicateTableFull: jetstream.INSUFFICIENT_RESOURCES,
    errors.ExpectedStreamDiffers: jetstream.WRONG_STREAM,
    errors.NameNotResolved: jetstream.NOT_AVAILABLE,
    errors.NodeBusy: jetstream.INSUFFICIENT_RESOURCES,
    errors.NodeStopping: jetstream.NOT_AVAILABLE,
    errors.NotEnoughReplicas: jetstream.NOT_AVAILABLE,
    errors.NotEnoughReplicasAfterAppend: jetstream.NOT_AVAILABLE,
    errors.NotLeader: jetstream.NOT_AVAILABLE,
    errors.OffsetNotAvailable: jetstream.NOT_AVAILABLE,
    errors.ProduceRateExceeded: jetstream.TOO_MANY_REQUESTS,
    errors.StorageFull: jetstream.STORAGE_FULL,
    errors.StreamNotFound: jetstream.STREAM_NOT_FOUND,
    errors.TimestampInvalid: jetstream.BAD_REQUEST,
    errors.TopicNotAuthorized: jetstream.NOT_AUTHORIZED,
    errors.TopicNotFound: jetstream.STREAM_NOT_FOUND,
    errors.UnsupportedFeature: jetstream.BAD_REQUEST,
}


def api_error(error: DuramenError) -> ApiError:
    """The error that a publisher is answered with."""
    return _API_ERRORS.get(type(error), jetstream.STORE_FAILED)
