"""How addresses are written."""

from duramen.base.hosts import host_port


def test_only_a_host_of_ipv6_stands_in_brackets() -> None:
    assert host_port("10.0.0.1", 9) == "10.0.0.1:9"
    assert host_port("::1", 9) == "[::1]:9"
