"""A node that says over HTTP what a test wants it to say."""

import http.server
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

Answer = tuple[int, object]
Answers = Mapping[str, Answer | Callable[[Any], Answer]]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: "_Server"

    def log_request(self, *_: object) -> None:
        """Says nothing: the test's output is its own."""

    def reply(self) -> None:
        asked = f"{self.command} {self.path}"
        self.server.asked.append(asked)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = self.server.answers.get(asked, (404, {"type": "http", "detail": "Not Found"}))
        status, document = found(json.loads(body)) if callable(found) else found
        content = document if isinstance(document, str) else "" if document is None else json.dumps(document)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())


class _Server(http.server.ThreadingHTTPServer):
    def __init__(self, answers: Answers) -> None:
        methods = {f"do_{method}": _Handler.reply for method in ("GET", "POST", "PATCH", "DELETE")}
        super().__init__(("127.0.0.1", 0), type("Handler", (_Handler,), methods))
        self.answers = answers
        self.asked: list[str] = []


class FakeNode:
    """Answers each `METHOD path` from `answers`: a status with JSON or text, or what a function makes of the body."""

    def __init__(self, answers: Answers) -> None:
        self._server = _Server(answers)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def asked(self) -> list[str]:
        """What was asked for, in order."""
        return self._server.asked

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
