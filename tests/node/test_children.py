"""The nats-server of a node: what it says, and its end where the kernel does not kill it with its parent (macOS)."""

import asyncio
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clients import until

from duramen.base.metrics import Metrics
from duramen.node import children
from duramen.node.addresses import Address
from duramen.node.children import NatsServer, watch

SLEEPER = [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(600)"]
PARENT = """
import subprocess, sys
from duramen.node.children import watch
child = subprocess.Popen(sys.argv[1:], start_new_session=True)
watcher = watch(child.pid)
print(child.pid, watcher.pid, flush=True)
sys.stdin.read()
"""


def runs(process_id: int) -> bool:
    """Whether a process is there, and not only waits for being buried."""
    listed = subprocess.run(
        ["/bin/ps", "-o", "stat=", "-p", str(process_id)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip()[:1] not in ("", "Z")


def test_the_watcher_kills_it_when_the_node_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, "/bin/sleep", "600"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child, watcher = map(int, parent.stdout.readline().split())
        assert runs(child)
        assert runs(watcher)
        parent.kill()
    until(lambda: not runs(child) and not runs(watcher))


def test_a_watcher_that_is_killed_lets_it_live() -> None:
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        watcher = watch(child.pid)
        assert watcher.stdin is not None
        watcher.kill()
        watcher.wait()
        watcher.stdin.close()
        assert child.poll() is None
        child.kill()


_SAYS_IT_AGAIN = """#!/bin/sh
printf '[1] [ERR] no way to 1\\n[1] [ERR] no way to 1\\n[1] [ERR] no way to 2\\n[1] [ERR] no way to 1\\n' >&2
printf '[1] [INF] Listening for client connections on 127.0.0.1:4222\\n' >&2
exec sleep 600
"""


def test_what_it_says_again_at_once_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nats-server"
    program.write_text(_SAYS_IT_AGAIN)
    program.chmod(0o755)
    monkeypatch.setattr(children, "_executable", lambda: str(program))

    async def listen() -> Address:
        server = NatsServer(tmp_path, Address("127.0.0.1", 0), "n", Metrics(), lambda: None)
        try:
            return await server.start()
        finally:
            await server.stop()

    assert asyncio.run(listen()) == Address("127.0.0.1", 4222)
    of_the_server = [record for record in caplog.records if record.name == "duramen.nats-server"]
    said = [record.getMessage() for record in of_the_server if record.levelno == logging.ERROR]
    assert said == ["no way to 1", "no way to 2", "no way to 1"]
