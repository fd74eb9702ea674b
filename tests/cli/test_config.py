"""`duramen config`: what is shown, and what a file is refused for."""

import json
from pathlib import Path

import pytest
from tests.cli.command import Run, run

from duramen.base.catalogue.catalogue import BROKER


def rows(text: str) -> dict[str, tuple[str, str]]:
    """Value and source by the setting's name."""
    header, *lines = text.splitlines()
    value_at, from_at = header.index("VALUE"), header.index("FROM")
    return {line.split()[0]: (line[value_at:from_at].strip(), line[from_at:].strip()) for line in lines}


def test_each_setting_with_its_value_and_source(tmp_path: Path) -> None:
    (tmp_path / "duramen.toml").write_text(
        '"log.durability" = "os"\n[log.retention]\nms = "1d"\n[wal.max]\nbytes = "2GiB"\n'
    )
    ended = run("config", "show", cwd=tmp_path, also={"DURAMEN_NUM_PARTITIONS": "3", "DURAMEN_WAL_MAX_BYTES": "1GiB"})
    assert (ended.code, ended.err) == (0, "")
    shown = rows(ended.out)
    assert list(shown) == list(BROKER)
    assert shown["log.durability"] == ("os", "duramen.toml")
    assert shown["log.retention.ms"] == ("86400000", "duramen.toml")
    assert shown["num.partitions"] == ("3", "DURAMEN_NUM_PARTITIONS")
    assert shown["wal.max.bytes"] == ("1073741824", "DURAMEN_WAL_MAX_BYTES")
    assert shown["kafka.listen"] == ("127.0.0.1:9092", "default")


def test_the_same_as_json(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("auto.create.topics.enable = false\n")
    ended = run("config", "show", "--config", "mine.toml", "--format", "json", cwd=tmp_path)
    found = {one["name"]: one for one in json.loads(ended.out)["settings"]}
    assert list(found) == list(BROKER)
    assert found["auto.create.topics.enable"] == {
        "name": "auto.create.topics.enable", "value": False, "source": "file", "origin": "mine.toml", "default": True,
    }  # fmt: skip
    assert found["node.id"] == {"name": "node.id", "value": 1, "source": "default", "origin": None, "default": 1}


@pytest.mark.parametrize("words", [("show", "--format", "json"), ("check", "mine.toml", "--format", "json")])
def test_unknown_variables_are_warnings(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "mine.toml").write_text("num.partitions = 2\n")
    also = {"DURAMEN_NUM_PARTITION": "3", "DURAMEN_PORT": "tcp://10.0.0.7:9092"}
    ended = run("config", *words, cwd=tmp_path, also=also)
    assert (ended.code, "settings" in json.loads(ended.out)) == (0, True)
    assert ended.err == (
        "Warning: the environment: DURAMEN_NUM_PARTITION is not a setting and is ignored;"
        " did you mean DURAMEN_NUM_PARTITIONS?\n"
    )


def test_what_show_refuses(duramen_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "duramen.toml").write_text('"wal.max.bytes" = 1\n[wal.max]\nbytes = 1\n')
    twice = duramen_alone("config", "show")
    assert (twice.code, twice.out) == (2, "")
    assert "duramen.toml: wal.max.bytes is set twice" in twice.err
    absent = duramen_alone("config", "show", "--config", "nowhere.toml")
    assert (absent.code, "nowhere.toml cannot be read" in absent.err) == (2, True)


def test_a_file_that_fits(duramen_alone: Run, tmp_path: Path) -> None:
    file = tmp_path / "fits.toml"
    file.write_text('node.id = 7\n[kafka]\nlisten = "127.0.0.1:9092,[::1]:9092"\n["log.retention"]\nms = "30d"\n')
    ended = duramen_alone("config", "check", "fits.toml")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"fits.toml sets 3 of {len(BROKER)} settings, all of them valid.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["fits.toml"]
    ended = duramen_alone("config", "check", "fits.toml", "--format", "json")
    assert (ended.code, json.loads(ended.out)) == (0, {"file": "fits.toml", "settings": 3, "faults": []})


def test_every_fault_is_named(duramen_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(
        'num.partitions = 0\nnum.partition = 1\nhttp.allowed.hosts = "a b"\n"wal.max.bytes" = "8MiB"\n'
        'kafka.listen = "0.0.0.0:9092"\nhttp.listen = "127.0.0.1"\nnats.listen = "127.0.0.1:1,127.0.0.1:2"\n'
        '[wal.max]\nbytes = "8MiB"\n'
        "[logging]\nlevel = 5\n[data]\ndir = ''\n"
    )
    ended = duramen_alone("config", "check", "wrong.toml")
    assert (ended.code, ended.out) == (2, "")
    lines = ended.err.splitlines()
    expected = [
        "wrong.toml: wal.max.bytes is set twice",
        "wrong.toml: num.partition is not a setting; did you mean num.partitions?",
        "wrong.toml: logging.level: 5 does not fit; it must be one of debug, info, warning, error",
        "wrong.toml: num.partitions: 0 does not fit",
        "data.dir: '' does not fit",
        "kafka.listen: 0.0.0.0:9092 is not loopback",
        "http.listen: '127.0.0.1' does not fit; it must be HOST:PORT",
        "http.allowed.hosts: 'a b' does not fit",
        "nats.listen: '127.0.0.1:1,127.0.0.1:2' does not fit; nats-server listens on one address only",
        "--kafka-advertise HOST:9092",
    ]
    assert len(lines) == len(expected), ended.err
    for line, said in zip(lines, expected, strict=True):
        assert line.startswith("duramen: ")
        assert line.endswith("[setting-invalid]")
        assert said in line
    as_json = duramen_alone("config", "check", "wrong.toml", "--format", "json")
    assert (as_json.code, as_json.err) == (2, "")
    faults = json.loads(as_json.out)["faults"]
    assert [f"duramen: {fault['message']} [{fault['id']}]" for fault in faults] == lines


def test_what_is_no_file_of_settings(duramen_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("[wal\n")
    for name, said in (("wrong.toml", "wrong.toml is not TOML"), ("absent.toml", "absent.toml cannot be read")):
        ended = duramen_alone("config", "check", name)
        assert (ended.code, ended.out, said in ended.err) == (2, "", True)
