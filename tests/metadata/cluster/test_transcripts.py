"""What the controller of a cluster decides in the situations that matter, to be read in `transcripts/`."""

from pathlib import Path

import pytest
from tests.metadata.cluster.script import TRANSCRIPTS, Script


@pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_it_goes_as_it_is_written(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert Script().run(text) == text
