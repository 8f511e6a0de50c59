"""A bad network on one port: passes bytes to a server, stalls now and then, and breaks every connection before long.

    python chaos.py LISTEN_HOST:PORT SERVER_HOST:PORT [SEED]

It sees encrypted bytes only. With the same seed the same connections live equally long. Standard library only, so that
it runs in any image that has Python.
"""

import asyncio
import contextlib
import random
import sys

LONGEST_LIFE_SECONDS = 20.0
STALL_SHARE = 0.02
LONGEST_STALL_SECONDS = 1.0
CHUNK_BYTES = 16 * 1024


async def serve(listen: str, server: str, chance: random.Random) -> None:
    """Passes connections on for ever."""
    host, port = _address(listen)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        life = chance.uniform(0, LONGEST_LIFE_SECONDS)
        try:
            further_reader, further_writer = await asyncio.open_connection(*_address(server))
        except OSError as error:
            print(f"chaos: {server} cannot be reached: {error}", flush=True)
            writer.transport.abort()
            return
        ways = [
            asyncio.create_task(_pass(reader, further_writer, chance)),
            asyncio.create_task(_pass(further_reader, writer, chance)),
        ]
        _, open_ways = await asyncio.wait(ways, timeout=life, return_when=asyncio.FIRST_COMPLETED)
        print(f"chaos: a connection {'broken' if len(open_ways) == 2 else 'ended'}", flush=True)
        for way in open_ways:
            way.cancel()
        for end in (writer, further_writer):
            # Abort sends a reset: neither side gets a chance to say goodbye.
            end.transport.abort()

    async with await asyncio.start_server(connected, host, port) as listener:
        print(f"chaos: listening on {listen}, passing to {server}", flush=True)
        await listener.serve_forever()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            if chance.random() < STALL_SHARE:
                await asyncio.sleep(chance.uniform(0, LONGEST_STALL_SECONDS))
            writer.write(data)
            await writer.drain()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(f"usage: {sys.argv[0]} LISTEN_HOST:PORT SERVER_HOST:PORT [SEED]")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(sys.argv[1], sys.argv[2], random.Random(*map(int, sys.argv[3:]))))
