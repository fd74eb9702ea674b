"""Formatting of host and port addresses."""

__all__ = ["host_port"]


def host_port(host: str, port: int) -> str:
    """HOST:PORT, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
