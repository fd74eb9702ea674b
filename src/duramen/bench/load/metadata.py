"""Metadata requests of several Kafka connections at a fixed rate, each connection in a process of its own."""

import multiprocessing
import random
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Final, NamedTuple

from duramen.bench.contenders import Contender
from duramen.bench.load.channels import MetadataChannel
from duramen.bench.load.connections import kafka_version, open_kafka
from duramen.bench.load.inventory import IN_NAMESPACE, TENANT, topic_names
from duramen.bench.load.open_loop import pace_line
from duramen.bench.load.percentiles import Latencies
from duramen.bench.load.schedule import Schedule
from duramen.bench.load.worker import end_at_once
from duramen.codec.kafka.versions import ApiKey

__all__ = ["PacedMetadata", "pace_metadata"]

_CONNECTIONS: Final = 4
_WARM_S: Final = 0.5
_MOST_NAMESPACES: Final = 200  # whose names one process keeps


class PacedMetadata(NamedTuple):
    """The latencies of all requests, and the CPU time of the processes that sent them."""

    latencies: Latencies
    client_cpu_s: float


def _pace(address: str, namespaces: int, names: int, schedule: Schedule, seed: int) -> tuple[list[int], float]:
    chance = random.Random(seed)
    numbers = chance.sample(range(namespaces), min(namespaces, _MOST_NAMESPACES))
    known = [(number, topic_names(number)) for number in numbers]
    warm = Schedule(schedule.rate_hz, _WARM_S)

    def drawn() -> str:
        number, some = chance.choice(known)
        return f"{TENANT}.n{number}.{some[chance.randrange(IN_NAMESPACE)]}"

    requests = [[drawn() for _ in range(names)] for _ in range(warm.messages + schedule.messages)]
    channel = MetadataChannel(kafka_version(address, ApiKey.METADATA), requests)
    contender = Contender("duramen", "", "kafka", address, "", "", "")
    line, before_s = open_kafka(contender, channel), time.process_time()
    took_us = pace_line(contender, line, warm, schedule)
    used_s = time.process_time() - before_s
    channel.check()
    return took_us, used_s


def pace_metadata(address: str, namespaces: int, names: int, rate_hz: float, duration_s: float) -> PacedMetadata:
    """Ask for so many names at once, drawn from all topics, `rate_hz` names a second. Raises DuramenError.

    Latency counts from when a request was due.
    """
    schedule = Schedule(rate_hz / names / _CONNECTIONS, duration_s)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_CONNECTIONS, context, end_at_once) as pool:
        jobs = [
            pool.submit(_pace, address, namespaces, names, schedule, seed) for seed in range(_CONNECTIONS)
        ]  # fmt: skip
        found = [job.result() for job in jobs]
    return PacedMetadata(Latencies(one for took_us, _ in found for one in took_us), sum(used_s for _, used_s in found))
