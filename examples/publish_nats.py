"""Publish to a subject with plain NATS; each answer says that the message is on disk, and at which offset.

python examples/publish_nats.py [nats://127.0.0.1:4222]
"""

import asyncio
import json
import sys

import nats


async def main() -> None:
    """Publish five orders, and the last one again: it is not stored twice."""
    client = await nats.connect(sys.argv[1] if len(sys.argv) > 1 else "nats://127.0.0.1:4222")
    for number in (1, 2, 3, 4, 5, 5):
        order = json.dumps({"order": number, "amount": 10 * number}).encode()
        answer = await client.request("orders.berlin", order, timeout=5, headers={"Nats-Msg-Id": f"order-{number}"})
        print(json.loads(answer.data))
    await client.close()


asyncio.run(main())
