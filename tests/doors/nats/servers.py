"""What a node may find where a NATS server should be: a real one that belongs to nobody, or something else."""

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Impostor", "Server"]


class Server:
    """A nats-server that belongs to nobody."""

    def __init__(self, directory: Path, config: str = "") -> None:
        self._config = directory / "nats.conf"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._config.write_text(f'listen: "127.0.0.1:{self.port}"\n{config}\n')
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        binary = Path(sys.executable).parent / "nats-server"
        self._process = subprocess.Popen([binary, "-c", self._config], stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        while b"Server is ready" not in self._process.stderr.readline():
            assert self._process.poll() is None

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None


class Impostor(threading.Thread):
    """Listens where a NATS server should, and says something else to everybody who comes; ends after the last.

    What it says is one piece, or several: then the visitor asks for a sign of life between them.
    """

    def __init__(self, port: int, says: Sequence[bytes | Sequence[bytes]]) -> None:
        super().__init__(daemon=True)
        self.says = says
        self.listener = socket.create_server(("127.0.0.1", port))

    def run(self) -> None:
        with self.listener:
            for words in self.says:
                visitor, _ = self.listener.accept()
                visitor.settimeout(0.2)
                with visitor, contextlib.suppress(OSError):
                    for number, piece in enumerate([words] if isinstance(words, bytes) else words):
                        while number and not visitor.recv(65536).endswith(b"PING\r\n"):
                            pass
                        visitor.sendall(piece)
                    while visitor.recv(65536):
                        pass
