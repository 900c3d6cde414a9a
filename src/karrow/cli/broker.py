"""``karrow broker``: the embedded broker as a process."""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import TYPE_CHECKING

from karrow.broker.embedded import AsyncBroker
from karrow.errors import TopicAlreadyExists

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - its only name

KAFKAS_PORT = 9092


def register(commands: Commands) -> None:
    """Add the command and its options."""
    parser = commands.add_parser("broker", help="run the embedded broker until interrupted")
    parser.add_argument("--port", type=int, default=KAFKAS_PORT, help="0 for any free one")
    parser.add_argument("--brokers", type=int, default=1, help="how many nodes, on ports in a row")
    parser.add_argument("--data-dir", help="keep everything here; else in memory only")
    parser.add_argument("--release", help='the Kafka release to pass for, such as "3.9"')
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        type=new_topic,
        metavar="NAME[:PARTITIONS]",
        help="create a topic unless it is there; may be given several times",
    )
    parser.set_defaults(run=run)


def new_topic(text: str) -> tuple[str, int]:
    """A topic's name and how many partitions it is to have."""
    name, _, count = text.partition(":")
    if not name or (count and not count.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME:PARTITIONS")
    return name, int(count or 1)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    return asyncio.run(serve(options))


async def serve(options: argparse.Namespace) -> int:
    """Start, say where, and wait."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    broker = AsyncBroker(
        options.brokers, port=options.port, data_dir=options.data_dir, version=options.release
    )
    async with broker:
        for name, partitions in options.topic:
            try:
                broker.create_topic(name, partitions)
            except TopicAlreadyExists:
                continue
        print(f"listening on {broker.bootstrap}", flush=True)
        await stop.wait()
    return 0
