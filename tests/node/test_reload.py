"""SIGHUP: what may change is taken from the file, what may not is named, and a wrong file changes nothing."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from duramen.node.process import NodeProcess

_IN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


class Listener:
    """What a service manager hears."""

    def __init__(self, address: str | bytes) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(60)

    def hear(self) -> dict[str, str]:
        """The assignments of the next datagram."""
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().split("\n"))

    def until(self, name: str) -> list[dict[str, str]]:
        """The datagrams up to the first that assigns `name`."""
        heard = [self.hear()]
        while name not in heard[-1]:
            heard.append(self.hear())
        return heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """A service manager that the nodes of this test have."""
    name = f"duramen-{os.getpid()}-{id(request)}"
    shown, address = (f"@{name}", f"\0{name}") if request.param == "abstract" else (str(tmp_path / "n"),) * 2
    found = Listener(address)
    monkeypatch.setenv("NOTIFY_SOCKET", shown)
    yield found
    found.close()


def test_the_service_manager_is_told_and_sighup_reloads(
    listener: Listener, new_node: Callable[..., NodeProcess], tmp_path: Path
) -> None:
    file = tmp_path / "duramen.toml"
    file.write_text("[log.retention]\nms = 100000\n")
    node = new_node().start()
    heard = listener.until("READY")
    assert heard[0]["STATUS"].startswith("starting: ")
    assert int(heard[0]["EXTEND_TIMEOUT_USEC"]) > 0
    client = AdminClient({"bootstrap.servers": node.kafka})

    def reload(content: str) -> str:
        before = node.log_path.stat().st_size
        file.write_text(content)
        node.signal(signal.SIGHUP)
        reloading, ready = listener.hear(), listener.hear()
        assert (reloading["RELOADING"], ready["READY"], "RELOADING" in ready) == ("1", "1", False)
        assert int(reloading["MONOTONIC_USEC"]) > 0
        with node.log_path.open() as log:
            log.seek(before)
            return log.read()

    def in_force(name: str) -> str:
        asked = ConfigResource(ConfigResource.Type.BROKER, "1")
        value: str = client.describe_configs([asked])[asked].result(30)[name].value
        return value

    said = reload(
        '[log.retention]\nms = 200000\n[wal.max]\nbytes = "64MiB"\n[num]\npartitions = 3\n[logging]\nlevel = "debug"\n'
    )
    assert "settings reloaded: logging.level from info to debug" in said
    assert "log.retention.ms from 100000 to 200000" in said
    assert "need a restart of the node: wal.max.bytes" in said
    assert [in_force(name) for name in ("log.retention.ms", "num.partitions", "wal.max.bytes")] == [
        "200000", "3", str(1 << 30)
    ]  # fmt: skip
    for wrong, why in (
        ("[log.retention]\nms = 1\n[num]\npartitions = 0\n", "num.partitions: 0 does not fit"),
        ("[log.retention\n", "duramen.toml is not TOML"),
        ('[nats.cluster]\nlisten = "127.0.0.1:6222"\n', "nats.cluster.listen: a standalone node"),
    ):
        said = reload(wrong)
        assert "the settings are not reloaded, and stay as they are" in said
        assert why in said
        assert in_force("log.retention.ms") == "200000"
    # A variable comes before the file: nothing is wrong with the settings of the node.
    assert "settings reloaded" in reload('[kafka]\nlisten = "nowhere"\n')
    assert in_force("log.retention.ms") == str(7 * 86_400_000)  # that file set none
    assert node.stop() == 0
    assert listener.hear()["STOPPING"] == "1"


def test_a_setting_that_was_changed_over_kafka_stays(new_node: Callable[..., NodeProcess], tmp_path: Path) -> None:
    node = new_node().start()
    client = AdminClient({"bootstrap.servers": node.kafka})
    changed = ConfigResource(ConfigResource.Type.BROKER, "1")
    changed.add_incremental_config(
        ConfigEntry("log.retention.ms", "300000", incremental_operation=AlterConfigOpType.SET)
    )
    client.incremental_alter_configs([changed])[changed].result(30)
    (tmp_path / "duramen.toml").write_text("[log.retention]\nms = 200000\n")
    node.signal(signal.SIGHUP)
    asked = ConfigResource(ConfigResource.Type.BROKER, "1")
    assert client.describe_configs([asked])[asked].result(30)["log.retention.ms"].value == "300000"
    assert node.stop() == 0
    said = node.log_path.read_text()
    assert "a value that was set while nodes ran stays in force for log.retention.ms" in said


@pytest.mark.long
@pytest.mark.parametrize("unattended", [False, True])
def test_the_end_of_its_terminal_stops_a_node_except_under_nohup(tmp_path: Path, *, unattended: bool) -> None:
    ours, theirs = os.openpty()
    doors = ("--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--nats", "off")
    serve = [
        *(["/usr/bin/nohup"] if unattended else []),
        sys.executable,
        "-m",
        "duramen",
        "serve",
        "--data-dir",
        "data",
    ]
    node = subprocess.Popen(
        [sys.executable, "-c", _IN_TERMINAL, *serve, *doors], cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert node.stdout is not None
    with node.stdout:
        while b"is ready" not in node.stdout.readline():
            assert node.poll() is None
        os.close(theirs)
        os.close(ours)
        if unattended:
            node.send_signal(signal.SIGTERM)
        assert node.wait(60) == 0
