"""Log lines: one event a line, for people and for programs."""

import io
import json
import logging
import sys
from datetime import datetime

import pytest

from duramen.node.logs import JsonFormatter, TextFormatter, configure


def record(message: str, *, failed: bool = False, fields: object = None) -> logging.LogRecord:
    """An event, with a traceback where it `failed`."""
    error = None
    if failed:
        try:
            raise ValueError("two\nlines")
        except ValueError:
            error = sys.exc_info()
    made = logging.LogRecord("duramen.node", logging.WARNING, "x.py", 1, message, (), error)
    if fields is not None:
        made.fields = fields
    return made


def test_text_is_one_line() -> None:
    line = TextFormatter().format(record("first\nsecond\n"))
    assert line.endswith(" WARNING duramen.node: first | second")
    failed = TextFormatter().format(record("it failed", failed=True))
    assert "\n" not in failed
    assert "it failed | Traceback (most recent call last): | " in failed
    assert failed.endswith("ValueError: two | lines")


def test_json_is_one_object() -> None:
    line = JsonFormatter().format(record("größer\nthan", fields={"logs": 3}))
    event = json.loads(line)
    assert "\n" not in line
    assert event == {
        "ts": event["ts"], "level": "warning", "logger": "duramen.node", "message": "größer\nthan",
        "fields": {"logs": 3},
    }  # fmt: skip
    assert datetime.fromisoformat(event["ts"]).utcoffset() is not None
    failed = JsonFormatter().format(record("it failed", failed=True))
    assert "\n" not in failed
    assert json.loads(failed)["traceback"].startswith("Traceback (most recent call last):\n")
    assert json.loads(failed)["fields"] == {}


def test_what_json_has_no_form_for_is_text() -> None:
    event = json.loads(JsonFormatter().format(record("x", fields={"path": ValueError("no")})))
    assert event["fields"] == {"path": "no"}


@pytest.mark.parametrize(
    ("level", "said"), [("debug", ["d", "i", "w", "e"]), ("info", ["i", "w", "e"]), ("error", ["e"])]
)
def test_the_least_that_is_logged(monkeypatch: pytest.MonkeyPatch, level: str, said: list[str]) -> None:
    root = logging.getLogger()
    handlers = root.handlers[:]
    before = [(changed, changed.level) for changed in map(logging.getLogger, ("root", "uvicorn", "asyncio"))]
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    try:
        configure(level, "json")
        log = logging.getLogger("duramen.test")
        log.debug("d")
        log.info("i")
        log.warning("w")
        log.error("e")
    finally:
        root.handlers[:] = handlers
        for changed, level_before in before:
            changed.setLevel(level_before)
    assert [json.loads(line)["message"] for line in stderr.getvalue().splitlines()] == said
