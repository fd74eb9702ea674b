"""Idle connections that only identify themselves, and unused topics: a broker's cost for them."""

import resource
import socket
import time
from contextlib import ExitStack
from typing import Final

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from duramen.base.errors import RequestInvalid, ServerUnreachable
from duramen.base.units import MIB
from duramen.bench.contenders import Contender

__all__ = ["create_topics", "hold_connections", "resident_mib"]

_TIMEOUT_S: Final = 120.0
_SETTLE_S: Final = 2.0
_SPARE: Final = 200
# ApiVersions 0 of a client without a name: size, API 18, version 0, correlation id 1, null.
_HELLO: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


def resident_mib(pid: int) -> float:
    """What a process holds of memory now."""
    return psutil.Process(pid).memory_info().rss / MIB


def hold_connections(contender: Contender, pid: int, connections: int) -> float:
    """Resident memory of a broker, in MiB, while so many connections are open that have asked for its versions.

    Raises ServerUnreachable.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE
    if soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(hard, wanted), hard)
        )
    host, _, port = contender.records.rpartition(":")
    try:
        with ExitStack() as stack:
            held = []
            for _ in range(connections):
                connection = stack.enter_context(socket.create_connection((host, int(port)), _TIMEOUT_S))
                connection.sendall(_HELLO)
                held.append(connection)
            for connection in held:
                if not connection.recv(4):
                    raise ServerUnreachable(f"{contender.name} has closed one of {connections} connections")
            time.sleep(_SETTLE_S)
            return resident_mib(pid)
    except OSError as error:
        raise ServerUnreachable(f"{connections} connections to {contender.name}: {error}") from None


def create_topics(contender: Contender, topics: int) -> float:
    """Seconds until so many topics are created by one request; they are deleted again. Raises RequestInvalid."""
    admin = AdminClient({"bootstrap.servers": contender.records})
    names = [f"{contender.topic}-{number}" for number in range(topics)]
    try:
        began_s = time.monotonic()
        created = admin.create_topics([NewTopic(name, 1) for name in names], request_timeout=_TIMEOUT_S)
        for future in created.values():
            future.result()
        took_s = time.monotonic() - began_s
        for future in admin.delete_topics(names, request_timeout=_TIMEOUT_S).values():
            future.result()
    except KafkaException as error:
        raise RequestInvalid(f"{topics} topics at {contender.name}: {error}") from None
    return took_s
