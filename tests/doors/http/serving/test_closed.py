"""Clients that close their connection before they have the response."""

import socket
import struct
from http.client import HTTPConnection

from duramen.node.process import NodeProcess

RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing sends RST


def test_a_client_that_resets_its_connection_leaves_no_traceback(node: NodeProcess) -> None:
    host, port = node.http.rsplit(":", 1)
    for path in ["/v1/node", "/v1/streams", "/nothing"] * 50:
        with socket.create_connection((host, int(port)), 60) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: {node.http}\r\n\r\n".encode() * 3)
    connection = HTTPConnection(node.http, timeout=60)
    connection.request("GET", "/v1/streams")
    assert connection.getresponse().status == 200
    connection.close()
    assert "Traceback" not in node.log_path.read_text()
