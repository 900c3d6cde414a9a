"""A broker that does what a test tells it to: it speaks the protocol, and lies on request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from karrow import wire

# What a handler gives: the answer's fields, raw bytes to send, or an action below.
Answer = dict[str, Any] | bytes
CLOSE = b"close"
SILENCE = b"silence"
Handler = Callable[[wire.Request], Answer]

CLUSTER = "scripted"


class ScriptedBroker:
    """Answers ApiVersions and Metadata as a one-node cluster; everything else by its script."""

    def __init__(
        self, *, supported: dict[str, tuple[int, int]] | None = None, node_id: int = 1
    ) -> None:
        self.node_id = node_id
        self.cluster_id: str | None = CLUSTER
        self.seen: list[str] = []
        self.versions: list[tuple[str, int]] = []
        self.connections = 0
        self.brokers: list[dict[str, Any]] | None = None
        self.topics: list[dict[str, Any]] = []
        self.handlers: dict[str, Handler] = {
            "ApiVersions": self.api_versions,
            "Metadata": self.metadata,
        }
        self._supported = supported or {
            name: (item.versions[0], min(item.versions[-1], item.newest_stable or 0))
            for name, item in wire.apis().items()
        }
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.drop_connections()
            await asyncio.sleep(0)
            self._server = None

    def drop_connections(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def me(self) -> dict[str, Any]:
        return {"node_id": self.node_id, "host": "127.0.0.1", "port": self.port}

    def add_topic(self, name: str, leader: int = 1, epoch: int = 0) -> None:
        partition = {"partition_index": 0, "leader_id": leader, "leader_epoch": epoch}
        self.topics = [topic for topic in self.topics if topic["name"] != name]
        self.topics.append({"name": name, "partitions": [partition]})

    def api_versions(self, _: wire.Request) -> Answer:
        return {"api_keys": self.ranges()}

    def ranges(self) -> list[dict[str, int]]:
        return [
            {"api_key": wire.api(name).key, "min_version": low, "max_version": high}
            for name, (low, high) in self._supported.items()
        ]

    def metadata(self, request: wire.Request) -> Answer:
        wanted = request.body.topics
        names = None if wanted is None else {topic.name for topic in wanted}
        topics = [topic for topic in self.topics if names is None or topic["name"] in names]
        missing = set(names or ()) - {topic["name"] for topic in topics}
        topics += [{"name": name, "error_code": 3, "partitions": []} for name in missing]
        return {
            "brokers": [self.me] if self.brokers is None else self.brokers,
            "cluster_id": self.cluster_id,
            "controller_id": self.node_id,
            "topics": topics,
        }

    def always(self, name: str, answer: Answer) -> None:
        """Give the same answer to every such request."""
        self.handlers[name] = lambda _: answer

    def sequence(self, name: str, *answers: Answer) -> None:
        """Give these answers in turn, and the last one for ever."""
        left = list(answers)
        self.handlers[name] = lambda _: left.pop(0) if len(left) > 1 else left[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        framing = wire.ServerFraming(self._supported)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while data := await reader.read(65536):
                for frame in framing.frames.feed(data):
                    if not await self._answer(framing, frame, writer):
                        return
        self._writers.discard(writer)
        writer.close()

    async def _answer(
        self, framing: wire.ServerFraming, frame: memoryview, writer: asyncio.StreamWriter
    ) -> bool:
        request = framing.receive(frame)
        name = request.api.name if request.api else "?"
        self.seen.append(name)
        self.versions.append((name, request.head.version))
        if isinstance(request, wire.Request):
            answer = self.handlers.get(name, _nothing)(request)
        elif name == "ApiVersions":
            answer = {"api_keys": self.ranges(), "error_code": 35}
        else:
            answer = CLOSE
        if answer == CLOSE:
            writer.transport.abort()
            return False
        if answer != SILENCE:
            parts = [answer] if isinstance(answer, bytes) else framing.respond(request, answer)
            writer.writelines(parts)
            await writer.drain()
        return True


def _nothing(_: wire.Request) -> Answer:
    return {}
