"""What every test of a cluster leaves behind: no socket of a client that met a killed node."""

from collections.abc import Iterator

import pytest
from tests.leaks import close_leaked_sockets


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_leaked_sockets()
