"""What `import duramen` brings: every name, and nothing before it is used."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import duramen
from duramen.base import errors as base
from duramen.doors.http.application import ROUTES
from duramen.doors.http.serving.openapi import errors_of

HEAVY = ("asyncio", "msgspec", "h11", "socket", "duramen.client", "duramen.client.api", "duramen.base")


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has after `code`."""
    program = f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_it_is_quick() -> None:
    assert not loaded("import duramen").intersection(HEAVY)


def test_a_client_needs_no_broker() -> None:
    parts = ("broker", "doors", "node", "storage", "spark", "host", "cli")
    after = loaded("import duramen\nduramen.connect, duramen.aio.connect, duramen.errors.DuramenError, duramen.testing")
    assert after.isdisjoint(f"duramen.{part}" for part in parts)
    assert "rocksdict" not in after


def test_every_name_is_there() -> None:
    assert [name for name in duramen.__all__ if getattr(duramen, name, None) is None] == []
    assert sorted(dir(duramen)) == sorted(duramen.__all__)
    with pytest.raises(AttributeError, match="no attribute 'disconnect'"):
        getattr(duramen, "dis" + "connect")
    assert duramen.Client is duramen.connect.__globals__["Client"]


def test_every_module_says_what_is_public() -> None:
    src = Path(duramen.__file__).parent
    missing = []
    for path in src.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        defines = re.search(r"^(class|def|async def) ", text, re.MULTILINE)
        says = re.search(r"^__all__\b", text, re.MULTILINE)
        missing += [str(path.relative_to(src))] if defines and not says else []
    assert missing == []
    assert (src / "py.typed").exists()


def test_errors_are_those_of_the_node() -> None:
    assert {getattr(duramen.errors, name) for name in duramen.errors.__all__} <= {
        getattr(base, name) for name in base.__all__
    }
    for name in duramen.errors.__all__:
        error = getattr(duramen.errors, name)
        assert issubclass(error, duramen.errors.DuramenError)
        assert name == "DuramenError" or (error.safe and error.remedy), name


def test_every_error_of_the_http_door_can_be_caught() -> None:
    answered = {error.__name__ for route in ROUTES for error in errors_of(route)}
    assert answered <= set(duramen.errors.__all__)
