"""The kafka-python project's own integration suite, from its source distribution, against a node."""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import pytest
from tests.compat.results import Results

from duramen.node.process import NodeProcess

pytestmark = pytest.mark.long

_VERSION: Final = "3.0.12"
_RUN_S: Final = 2400.0
_OUTCOME: Final = re.compile(r"::(test_\w+(?:\[[^\]]*\])?) (PASSED|FAILED|ERROR|SKIPPED)(?: \((.*)\))?")

LEFT_OUT: Final = {
    "test_sasl_integration": "SASL is not part of Duramen yet",
    "test_ssl_integration": "TLS is not part of Duramen yet",
    "test_create_describe_delete_acls": "there are no ACLs without users",
    "test_alter_replica_log_dirs": "about several log directories of a broker",
    "test_list_config_resources": "ListConfigResources came with 4.1; to this client Duramen is a 4.0",
}
"""What does not run, by parts of names, and why."""

# The suite's own class for brokers that run elsewhere is not in the source distribution.
_SERVICE: Final = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port
    def open(self): pass
    def close(self): pass
class SpawnedService: pass
"""


def _unpacked(directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
               "--no-build-isolation", f"kafka-python=={_VERSION}", "-d", str(directory)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S, check=False)
    if done.returncode:
        pytest.skip(f"kafka-python's source cannot be fetched: {done.stderr.splitlines()[-1:]}")
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    home = archive.with_name(archive.name.removesuffix(".tar.gz"))
    (home / "test" / "__init__.py").touch()
    (home / "test" / "service.py").write_text(_SERVICE, encoding="utf-8")
    (home / "servers" / "4.0.0" / "kafka-bin").mkdir(parents=True)
    return home


def test_its_suite_passes(tmp_path: Path) -> None:
    home = _unpacked(tmp_path)
    results = Results("kafka-python's own suite", _VERSION, "Python")
    for name, why in LEFT_OUT.items():
        results.note(name, "lacks", f"left out: {why}")
    # As the suite's own properties of a broker have them.
    settings = {
        "group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000, "num.partitions": 4, "node.id": 0,
    }  # fmt: skip
    with NodeProcess(tmp_path / "data", settings) as node:
        environment = {
            **os.environ, "KAFKA_URI": f"kafka://{node.kafka}", "KAFKA_VERSION": "4.0.0", "PYTHONPATH": str(home),
        }  # fmt: skip
        chosen = " and ".join(f"not {name}" for name in LEFT_OUT)
        done = subprocess.run(
            [
                sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:duramen", "-p", "no:xdist", "-o",
                "addopts=", "-k", chosen, "-v", "--tb=short", "test/integration",
            ], cwd=home, env=environment, capture_output=True, text=True, timeout=_RUN_S, check=False,
        )  # fmt: skip
    for line in done.stdout.splitlines():
        if (found := _OUTCOME.search(line)) is None:
            continue
        name, outcome, why = found.groups()
        if outcome == "SKIPPED":
            results.note(name, "lacks", why or "skipped")
        else:
            results.note(
                name, "passes" if outcome == "PASSED" else "fails", "" if outcome == "PASSED" else "see the run"
            )
    results.write()
    assert done.returncode == 0, done.stdout[-6000:]
