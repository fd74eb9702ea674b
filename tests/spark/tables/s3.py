"""An S3 server in a process of its own, and how to get there."""

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def s3_with_a_lake() -> Iterator[dict[str, str]]:
    """A server with a bucket `lake`; gives the options of a table's storage."""
    server = Path(__file__).parent / "s3_server.py"
    with subprocess.Popen(
        [sys.executable, str(server)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("PUT", "/lake")
        assert connection.getresponse().status == 200
        connection.close()
        yield {
            "s3.endpoint": f"http://127.0.0.1:{port}",
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
        }
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
