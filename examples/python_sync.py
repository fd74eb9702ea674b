"""Write to a stream and read it again, with blocking calls.

python examples/python_sync.py [127.0.0.1:9644]
"""

import json
import sys

import duramen

with duramen.connect(sys.argv[1] if len(sys.argv) > 1 else None) as client:
    client.streams.create("readings", partitions=2, config={"retention.ms": "7d"})

    places = client.produce(
        "readings",
        [duramen.NewRecord(json.dumps({"celsius": celsius}), key="berlin") for celsius in (20, 21, 19)],
    )
    print(
        f"{len(places)} records stored, the last one at offset {places[-1].offset} of partition {places[-1].partition}"
    )

    for batch in client.consume("readings", offset=-2, partition=places[-1].partition):
        for record in batch:
            print(record.offset, record.key, json.loads(record.text)["celsius"])

    try:
        client.produce("reading", ["20"])
    except duramen.errors.StreamNotFound as error:
        print(error)
