"""Values of rows as JSON has them, so that rows of two programs can be compared; needs nothing but Python."""

import base64
from datetime import UTC, datetime
from typing import Any


def plain(value: Any) -> Any:
    """Bytes in base64, times in UTC, inside of others too."""
    if isinstance(value, bytearray | bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value.isoformat() if hasattr(value, "isoformat") else value
