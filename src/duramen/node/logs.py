"""Logging of a node: one event per line on standard error, as text or as JSON.

Structured values of an event are passed as `extra={"fields": {…}}`.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

__all__ = ["JsonFormatter", "TextFormatter", "configure"]

_LINE_BREAK: Final = " | "


class TextFormatter(logging.Formatter):
    """Time, level, logger and message on one line; line breaks, also those of a traceback, become bars."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return _LINE_BREAK.join(line for line in super().format(record).splitlines() if line.strip())


class JsonFormatter(logging.Formatter):
    """One JSON object: ts (ISO 8601 in UTC), level, logger, message, fields, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        event = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "fields": getattr(record, "fields", {}),
        }
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False, default=str)


def configure(level: str, format_: str) -> None:
    """Log events of at least this level to standard error from here on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format_ == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Invalid client requests are answered, not logged; debug messages of libraries are not about the node.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(max(logging.INFO, root.level))
