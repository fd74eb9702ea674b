"""`duramen serve`: its options, its banner, its refusals. Starting, draining and stopping: tests/node."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.command import Run, run

from duramen.base.catalogue.catalogue import BROKER
from duramen.node.addresses import Address
from duramen.node.overlaps import resolved
from duramen.node.process import NodeProcess


@contextmanager
def listening() -> Iterator[str]:
    """Somebody else's port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


ELSEWHERE = ("--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--nats", "off")


def test_every_setting_is_an_option(duramen_alone: Run) -> None:
    said = duramen_alone("serve", "--help").out
    assert [setting.option_name for setting in BROKER.values() if setting.option_name not in said] == []


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kafka-listen", "localhost"), "kafka.listen: 'localhost' does not fit; it must be HOST:PORT"),
        (("--http-listen", "127.0.0.1:99999"), "http.listen: '127.0.0.1:99999' does not fit"),
        (("--kafka-listen", "0.0.0.0:0"), "--insecure"),
        (("--memory-limit-bytes", "1MiB"), "memory.limit.bytes: '1MiB' does not fit; it must be a number of bytes"),
        (("--nats", "maybe"), "nats.server: 'maybe' does not fit; it must be embedded, off, or an address"),
        (("--config", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("--data-dir", ""), "data.dir: '' does not fit; it must be the path of a directory"),
        (("--log-durability", "always"), "it must be one of sync, os, memory"),
    ],
)
def test_wrong_settings(duramen_alone: Run, words: tuple[str, ...], said: str) -> None:
    ended = duramen_alone("serve", *ELSEWHERE, *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_unknown_variables_are_warnings_and_those_of_kubernetes_are_not(new_node: Callable[..., NodeProcess]) -> None:
    of_kubernetes = {"service.host": "10.0.0.7", "service.port": "9092", "port": "tcp://10.0.0.7:9092"}
    node = new_node({"memroy.limit.bytes": "abc", **of_kubernetes}).start()
    warnings = [line for line in node.log_path.read_text().splitlines() if "WARNING" in line]
    assert len(warnings) == 1, warnings
    assert "DURAMEN_MEMROY_LIMIT_BYTES is not a setting" in warnings[0]
    assert "did you mean DURAMEN_MEMORY_LIMIT_BYTES?" in warnings[0]


def test_a_variable_with_a_bad_value() -> None:
    also = {"DURAMEN_MEMROY_LIMIT_BYTES": "abc", "DURAMEN_MEMORY_LIMIT_BYTES": "abc"}
    ended = run("serve", *ELSEWHERE, also=also)
    assert (ended.code, ended.out) == (2, "")
    assert "DURAMEN_MEMORY_LIMIT_BYTES: memory.limit.bytes: 'abc' does not fit" in ended.err


def test_wrong_files(duramen_alone: Run, tmp_path: Path) -> None:
    file = tmp_path / "duramen.toml"
    for content, said in (
        (b"[wal\n", "duramen.toml is not TOML"),
        (b"\xff", "duramen.toml is not TOML"),
        (b"[log]\ndurability = 5\n", "log.durability: 5 does not fit; it must be one of sync, os, memory"),
        (b"[wal.max]\nbites = 5\n", "wal.max.bites is not a setting; did you mean wal.max.bytes?"),
    ):
        file.write_bytes(content)
        ended = duramen_alone("serve", *ELSEWHERE)
        assert (ended.code, said in ended.err) == (2, True), ended.err


@pytest.mark.variants(1)
@pytest.mark.parametrize("door", ["kafka", "http", "nats"])
def test_a_port_that_is_taken(duramen_alone: Run, door: str) -> None:
    words = ["serve", "--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0"]
    with listening() as address:
        words[words.index(f"--{door}-listen") + 1] = address
        ended = duramen_alone(*words)
    assert (ended.code, ended.out) == (1, "")
    last = ended.err.splitlines()[-1]
    assert last.startswith("duramen: ")
    assert address in last
    assert "in use" in last


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("one", "other"), [("kafka", "http"), ("kafka", "nats"), ("http", "cluster"), ("nats", "nats-cluster")]
)
def test_two_doors_on_one_address(duramen_alone: Run, tmp_path: Path, one: str, other: str) -> None:
    words = ["--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0"]
    if "cluster" in other:
        seeds = ["--cluster-seeds", "127.0.0.1:7400", "--cluster-secret-file", str(tmp_path / "secret")]
        words += ["--cluster-listen", "127.0.0.1:7400", "--node-id", "1", *seeds]
    ended = duramen_alone("serve", *words, f"--{one}-listen", "127.0.0.1:7399", f"--{other}-listen", "127.0.0.1:7399")
    assert (ended.code, ended.out) == (2, "")
    (said,) = ended.err.splitlines()
    assert f"{other.replace('-', '.')}.listen: 127.0.0.1:7399 does not fit; {one}.listen has 127.0.0.1:7399" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_two_doors_on_one_address_by_name(duramen_alone: Run, tmp_path: Path) -> None:
    name = socket.gethostname()
    address = resolved(Address(name, 7399))
    if address.host == name:
        pytest.skip("this machine has no address for its name")
    words = ["--kafka-listen", f"{name}:7399", "--http-listen", str(address), "--nats", "off", "--insecure"]
    ended = duramen_alone("serve", *words)
    assert (ended.code, ended.out) == (2, "")
    assert f"http.listen: {address} does not fit; kafka.listen has {name}:7399" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_in_use(duramen_alone: Run, new_node: Callable[..., NodeProcess], tmp_path: Path) -> None:
    node = new_node().start()
    ended = duramen_alone("serve", *ELSEWHERE, "--data-dir", str(tmp_path / "data"))
    assert (ended.code, ended.out) == (1, "")
    assert "is in use by another node" in ended.err
    assert node.running
    assert duramen_alone("stream", "list", server=node.http).code == 0


@pytest.mark.long
def test_a_directory_that_is_not_ours(duramen_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    ended = duramen_alone("serve", *ELSEWHERE, "--data-dir", "photos")
    assert (ended.code, "it is not a data directory of Duramen" in ended.err) == (1, True)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]
    file = duramen_alone("serve", *ELSEWHERE, "--data-dir", "photos/cat.jpg")
    assert (file.code, "cannot be used" in file.err) == (1, True)


@pytest.mark.long
def test_a_directory_of_a_newer_version(duramen_alone: Run, new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    node.stop()
    meta = node.data_dir / "duramen.json"
    meta.write_text(meta.read_text().replace('"format":1', '"format":2'))
    ended = duramen_alone("serve", *ELSEWHERE, "--data-dir", str(node.data_dir))
    assert ended.code == 1
    assert "has the storage format 2; this version of Duramen knows 1: use a newer one" in ended.err
    meta.write_text("{")
    damaged = duramen_alone("serve", *ELSEWHERE, "--data-dir", str(node.data_dir))
    assert (damaged.code, "duramen.json is damaged" in damaged.err) == (1, True)
