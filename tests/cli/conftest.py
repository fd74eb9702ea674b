"""The command, run against the shared node or without one."""

from pathlib import Path

import pytest
from tests.cli.command import Ended, Run, run

from duramen.node.process import NodeProcess


@pytest.fixture
def duramen(node: NodeProcess) -> Run:
    """Runs `duramen WORDS…` against the shared node."""

    def run_there(*words: str, stdin: bytes = b"") -> Ended:
        return run(*words, stdin=stdin, server=node.http)

    return run_there


@pytest.fixture
def duramen_alone(tmp_path: Path) -> Run:
    """Runs `duramen WORDS…` in an empty directory, with no node named."""

    def run_there(*words: str, stdin: bytes = b"", server: str | None = None) -> Ended:
        return run(*words, stdin=stdin, server=server, cwd=tmp_path)

    return run_there
