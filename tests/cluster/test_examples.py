"""The files of `examples/cluster`: what can be said of them without root, systemd running, or Docker."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from tests.untyped import untyped

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import SettingInvalid
from duramen.base.settings import Settings
from duramen.cli.config import read_file
from duramen.node.addresses import Address
from duramen.node.listeners import Listening, contradictions, listening

_EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "cluster"
_NODES: Final = ("node1", "node2", "node3")


def _read(settings: Settings) -> Listening:
    assert list(contradictions(settings)) == []
    return listening(settings)


def test_a_node_takes_the_settings() -> None:
    faults: list[SettingInvalid] = []
    file, name = read_file(str(_EXAMPLES / "duramen.toml"), faults)
    assert faults == []
    found = _read(Settings(BROKER, options={"node.id": 1}, file=file, file_name=name))
    assert found.cluster in found.seeds


def test_the_unit_starts_a_node_with_options_that_there_are() -> None:
    unit = (_EXAMPLES / "duramen@.service").read_text()
    command = re.search(r"^ExecStart=\S+ serve (.*)$", unit, re.MULTILINE)
    assert command is not None
    options = command[1].split()[::2]
    known = subprocess.run(
        [sys.executable, "-m", "duramen", "serve", "--help"], check=True, capture_output=True, text=True
    ).stdout
    assert [option for option in options if f" {option} " not in known] == []


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("there is no systemd-analyze here")
    unit = (_EXAMPLES / "duramen@.service").read_text()
    there = tmp_path / "duramen@1.service"
    there.write_text(unit.replace("/opt/duramen/bin/duramen", sys.executable))  # it asks whether the program is there
    done = subprocess.run([verifier, "verify", str(there)], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_nodes_of_the_compose_file_find_each_other() -> None:
    document: Mapping[str, Any] = untyped("yaml").safe_load((_EXAMPLES / "compose.yaml").read_text())
    services = document["services"]
    assert tuple(services) == _NODES
    reached: list[Address] = []
    ports: list[str] = []
    seeds: set[tuple[Address, ...]] = set()
    for number, (name, service) in enumerate(services.items(), 1):
        environment = {variable: str(value) for variable, value in service["environment"].items()}
        found = _read(Settings(BROKER, environment=environment))
        assert environment["DURAMEN_NODE_ID"] == str(number)
        assert found.cluster_reached is not None
        assert found.cluster_reached.host == name
        reached.append(found.cluster_reached)
        seeds.add(found.seeds)
        assert environment["DURAMEN_KAFKA_ADVERTISE"] in [text.rpartition(":")[0] for text in service["ports"]]
        ports += [text.rpartition(":")[0] for text in service["ports"]]
        assert service["volumes"][0].partition(":")[0] in document["volumes"]
        assert environment["DURAMEN_CLUSTER_SECRET_FILE"] == f"/run/secrets/{next(iter(document['secrets']))}"
    assert seeds == {tuple(reached)}
    assert len(set(ports)) == len(ports)
