"""Six queues, written in batches and followed by long polling; then a promotion rewrites the end of one.

python examples/queues/promotion.py [127.0.0.1:9644]
"""

import sys
import threading
import time
import uuid

import duramen

SERVER = sys.argv[1] if len(sys.argv) > 1 else None
QUEUES = [f"shard-{number}" for number in range(6)]
ROWS, BATCH = 2048, 1024


def write(queue: str) -> None:
    """Put rows into a queue; a batch that is repeated after an error is put in once."""
    with duramen.connect(SERVER) as client:
        for first in range(0, ROWS, BATCH):
            rows = [f"{queue} {first + number} ".ljust(100, ".") for number in range(BATCH)]
            client.queues("examples").enqueue(queue, rows, request_id=str(uuid.uuid4()))


def follow(queue: str, seen: dict[str, list[str]]) -> None:
    """Read a queue as it grows; where its history was rewritten, forget what was wrong."""
    with duramen.connect(SERVER) as client:
        at, entries = "start", list[duramen.QueueEntry]()
        while not entries or entries[-1].text != "the end":
            try:
                page = client.queues("examples").retrieve(queue, at, limit=BATCH, wait_s=10)
            except duramen.errors.QueueHistoryRewritten as error:
                wrong = int(error.start.partition(".")[2])
                entries = [one for one in entries if int(one.position.partition(".")[2]) < wrong]
                print(f"{queue}: taken back from {error.start} on by {error.by}: {error.reason}")
                at = error.start
                continue
            entries += page.entries
            at = page.next
        seen[queue] = [one.text for one in entries]


with duramen.connect(SERVER) as client:
    client.spaces.create("examples", shards=6)
    queues = client.queues("examples")
    for queue in QUEUES:
        queues.drop(queue)

    began = time.monotonic()
    writers = [threading.Thread(target=write, args=(queue,)) for queue in QUEUES]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    print(f"{len(QUEUES) * ROWS} rows in {time.monotonic() - began:.1f} s")

    seen: dict[str, list[str]] = {}
    readers = [threading.Thread(target=follow, args=(queue, seen)) for queue in QUEUES]
    for reader in readers:
        reader.start()

    # The last rows of the first queue never happened: what did comes in their place.
    *_, last_but_one, last = queues.read(QUEUES[0])
    queues.replace(QUEUES[0], last_but_one.position, ["what did happen"], by="failover", reason="two events were lost")
    queues.edit(QUEUES[1], [(next(queues.read(QUEUES[1])).position, "edited")])
    for queue in QUEUES:
        queues.enqueue(queue, ["the end"])
    for reader in readers:
        reader.join()
    print(len(seen[QUEUES[0]]), seen[QUEUES[0]][-2:], seen[QUEUES[1]][-1])
