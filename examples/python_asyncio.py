"""Write from many tasks at once while another task reads, with asyncio.

python examples/python_asyncio.py [127.0.0.1:9644]
"""

import asyncio
import sys

import duramen


async def read(client: duramen.aio.Client, count: int) -> None:
    """Read on as records come, until there were `count`."""
    numbers: list[int] = []
    async for batch in client.consume("numbers", until=None):
        numbers += [int(record.text) for record in batch]
        if len(numbers) >= count:
            break
    print(f"{count} records read, {sum(numbers)} in sum")


async def main() -> None:
    """A hundred tasks write a record each: they share the node's disk syncs."""
    async with await duramen.aio.connect(sys.argv[1] if len(sys.argv) > 1 else None) as client:
        await client.streams.create("numbers")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(read(client, 100))
            for number in range(100):
                tasks.create_task(client.produce("numbers", [str(number)]))


asyncio.run(main())
