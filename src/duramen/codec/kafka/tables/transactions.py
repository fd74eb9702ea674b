"""Ids of producers and their transactions. Data only; the notation is that of `schema`."""

from typing import Final

from duramen.codec.kafka.versions import ApiKey

__all__ = ["REQUESTS", "RESPONSES"]

REQUESTS: Final = {
    ApiKey.INIT_PRODUCER_ID: """
        transactional_id string?
        transaction_timeout_ms int32
        producer_id int64 3+ = -1
        producer_epoch int16 3+ = -1
    """,
}

RESPONSES: Final = {
    ApiKey.INIT_PRODUCER_ID: """
        throttle_time_ms int32
        error_code int16
        producer_id int64 = -1
        producer_epoch int16
    """,
}
