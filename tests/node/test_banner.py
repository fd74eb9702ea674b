"""The banner: each door's address and a line to try for each."""

from pathlib import Path

from duramen import __version__
from duramen.node.banner import banner


def test_an_address_and_a_line_for_each_door() -> None:
    addresses = {"http": "127.0.0.1:9644", "kafka": "[::1]:9092", "nats": "127.0.0.1:4222"}
    assert banner(Path("/data"), addresses, "", "") == [
        f"Duramen {__version__} is ready.",
        "  data   /data",
        "  http   127.0.0.1:9644   try: curl http://127.0.0.1:9644/readyz",
        "  kafka  [::1]:9092       try: kcat -b [::1]:9092 -L",
        "  nats   127.0.0.1:4222   try: nats pub -s nats://127.0.0.1:4222 greetings hello",
    ]


def test_lines_that_work_where_it_listens_everywhere() -> None:
    lines = banner(Path("/data"), {"http": "[::]:9644", "kafka": "0.0.0.0:9092"}, "broker.example:19092", "")
    assert lines[2].endswith("try: curl http://[::1]:9644/readyz")
    assert lines[3].endswith("try: kcat -b broker.example:19092 -L")


def test_a_problem_is_said_first() -> None:
    first = banner(Path("/data"), {"http": "127.0.0.1:1"}, "", "NATS at a:1 does not answer")[0]
    assert first == f"Duramen {__version__} runs, but NATS at a:1 does not answer"
