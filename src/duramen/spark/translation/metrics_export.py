"""The job's metrics for Prometheus, over HTTP, on an address of the job's own."""

import http.server
from collections.abc import Callable
from threading import Thread
from typing import Final, Self

from duramen.base.errors import SettingInvalid

__all__ = ["Exporter"]

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PATH: Final = "/metrics"


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    text: Callable[[], str]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Respond with all metrics."""
        found = self.path.split("?", 1)[0] == _PATH
        content = (self.server.text() if found else f"metrics are at {_PATH}\n").encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, *_: object) -> None:
        """Logs nothing."""


class Exporter:
    """Serves the result of `text` while it is open."""

    def __init__(self, address: str, text: Callable[[], str]) -> None:
        """Raises SettingInvalid for an invalid or unavailable address."""
        host, colon, port = address.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise SettingInvalid(f"--metrics: {address!r} does not fit; it must be HOST:PORT such as 127.0.0.1:9655")
        try:
            self._server = _Server((host.strip("[]"), int(port)), _Handler)
        except OSError as error:
            raise SettingInvalid(f"--metrics: {address} cannot be had: {error.strerror or error}") from None
        self._server.text = text
        self._thread = Thread(target=self._server.serve_forever, name="duramen-metrics", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
