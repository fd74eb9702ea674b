"""`duramen log verify`: every damaged range of a directory by name, and nothing is changed."""

import json
from pathlib import Path

import pytest
from tests.cli.command import Run

import duramen
from duramen.node.process import NodeProcess

DAMAGED = 3


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A directory of a node that was stopped, with a stream in several segments."""
    directory = tmp_path / "data"
    with NodeProcess(directory) as node, duramen.connect(node.http) as client:
        client.streams.create("s", config={"segment.bytes": 3000})
        for number in range(20):
            client.produce("s", [b"%d-%d " % (number, at) * 50 for at in range(2)])
        node.stop()
    return directory


def segments(directory: Path) -> list[Path]:
    found = next(path for path in directory.rglob("*.log") if b"0-0 " in path.read_bytes()).parent
    return sorted(found.glob("*.log"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_sound_directory(duramen_alone: Run, stored: Path) -> None:
    before = {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()}
    done = duramen_alone("log", "verify", str(stored))
    assert done.code == 0
    assert done.out.endswith("checked: no damage.\n")
    assert {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()} == before
    done = duramen_alone("log", "verify", str(segments(stored)[0]), "--format", "json")
    assert done.code == 0
    document = json.loads(done.out)
    assert (document["sound"], document["segments"], document["damaged"]) == (True, 1, [])


def test_damage_is_named(duramen_alone: Run, stored: Path) -> None:
    first, second = segments(stored)[:2]
    flip(first, 200)
    flip(second.with_suffix(".index"), 60)
    done = duramen_alone("log", "verify", str(stored), "--format", "json")
    assert done.code == DAMAGED
    document = json.loads(done.out)
    name = str(first.relative_to(stored))
    batch, index = document["damaged"]
    assert (batch["file"], batch["cause"], batch["first_byte"]) == (name, "batch-crc", 0)
    assert (batch["first_offset"], batch["last_offset"]) == (0, 1)
    assert (index["cause"], index["first_byte"]) == ("index", None)
    done = duramen_alone("log", "verify", str(stored))
    assert done.code == DAMAGED
    assert f"{name}: bytes 0 to {batch['end_byte']} (offsets 0 to 1) are damaged: " in done.out
    assert "2 things are damaged" in done.out
    done = duramen_alone("log", "verify", str(first))
    assert done.code == DAMAGED
    assert "1 thing is damaged" in done.out


@pytest.mark.long
def test_a_description_that_is_damaged(duramen_alone: Run, stored: Path) -> None:
    flip(stored / "duramen.json", 0)
    done = duramen_alone("log", "verify", str(stored))
    assert done.code == DAMAGED
    assert done.out.startswith("duramen.json: ")


@pytest.mark.long
def test_a_directory_that_a_node_holds_is_refused(duramen_alone: Run, stored: Path) -> None:
    with NodeProcess(stored):
        for path in (stored, segments(stored)[0]):
            done = duramen_alone("log", "verify", str(path))
            assert done.code == 1
            assert "in use by a running node" in done.err


@pytest.mark.long
def test_what_is_no_directory_and_no_segment(duramen_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"")
    for path in (tmp_path, tmp_path / "none", tmp_path / "x.log", tmp_path / "00000000000000000000.log"):
        done = duramen_alone("log", "verify", str(path))
        assert done.code == 1
        assert str(path) in done.err


@pytest.mark.long
def test_a_segment_by_itself(duramen_alone: Run, stored: Path, tmp_path: Path) -> None:
    copy = tmp_path / segments(stored)[0].name
    copy.write_bytes(segments(stored)[0].read_bytes())
    assert duramen_alone("log", "verify", str(copy)).code == 0
    flip(copy, 200)
    assert duramen_alone("log", "verify", str(copy)).code == DAMAGED
