"""Workers lease jobs of many tenants; a job that fails comes again later, and at last as a dead letter.

python examples/queues/workers.py [127.0.0.1:9644]
"""

import sys
import threading

import duramen

SERVER = sys.argv[1] if len(sys.argv) > 1 else None
CONFIG = {"queue.dead.letter.queue": "dead", "queue.delivery.count.limit": 3}
TENANTS = [f"tenant-{number}" for number in range(20)]


def work(done: list[str]) -> None:
    """Work on what comes until nothing does for two seconds."""
    with duramen.connect(SERVER) as client:
        queues = client.queues("examples-work")
        while leased := queues.lease(TENANTS, 10, lease_s=30, wait_s=2):
            good = [job for job in leased if not job.text.startswith("broken")]
            queues.ack(good)
            queues.nack([job for job in leased if job not in good], delay_s=0.2)
            done += [f"{job.queue} {job.text}" for job in good]


with duramen.connect(SERVER) as client:
    client.spaces.create("examples-work", shards=4, config=CONFIG)
    queues = client.queues("examples-work")
    for name in (*TENANTS, "dead"):
        queues.purge(name)
    queues.enqueue_many([(tenant, f"job {number}") for tenant in TENANTS for number in range(5)])
    queues.enqueue("tenant-7", ["broken job"])

    done: list[str] = []
    workers = [threading.Thread(target=work, args=(done,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{len(done)} jobs done, {len(set(done))} different ones")
    for letter in queues.read("dead"):
        said = dict(letter.headers)
        print(f"dead: {letter.text} of {(said['duramen-dead-letter-queue'] or b'').decode()}")
