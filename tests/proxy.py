"""A TCP proxy between client and broker that misbehaves on request.

    with ClusterProxy(cluster) as proxy:
        client = connect(proxy.bootstrap)      # answers name the proxies as brokers
        proxy.node(1).blackhole()

Bytes are cut into Kafka's frames, so that single requests and answers can be held, dropped and
rewritten; TLS is passed on as it comes. Directions are seen from the client: *up* goes to the
broker, *down* to the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from tests.brokers import KafkaCluster
from tests.proxy_link import Address, Cut, Direction, Faults, Link, Seen, Step

HOST = "127.0.0.1"
CALL_TIMEOUT = 30.0
T = TypeVar("T")


class Proxy:
    """Forwards one port to one broker; every method may be called from any thread."""

    def __init__(self, target: Address, rewrite: Mapping[Address, Address] | None = None) -> None:
        self.target = target
        self.port = 0
        self.accepted = 0
        """Connections since the start."""
        self._faults = Faults(dict(rewrite or {}))
        self._links: set[Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._listener: socket.socket | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def address(self) -> Address:
        """Where clients connect."""
        return HOST, self.port

    @property
    def bootstrap(self) -> str:
        """The same as "host:port"."""
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._call(self._count())

    @property
    def seen(self) -> list[Seen]:
        """The requests that came, in order, whether or not they were passed on."""
        return list(self._faults.seen)

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        self._call(self._listen())

    def close(self) -> None:
        """Cut everything off and end the thread."""
        if self._loop.is_closed():
            return
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def map_addresses(self, rewrite: Mapping[Address, Address]) -> None:
        """Replace brokers' addresses in answers from now on."""
        self._faults.rewrite = dict(rewrite)

    def latency(self, seconds: float) -> None:
        """Deliver everything that much later, each way."""
        self._faults.latency = seconds

    def rate(self, bytes_per_second: float | None) -> None:
        """Let only so much through, each way of each connection."""
        self._faults.rate = bytes_per_second

    def blackhole(self) -> None:
        """Deliver nothing, not even that a side has closed; connections are still accepted."""
        self._call(self._set_open(False))

    def restore(self) -> None:
        """Deliver again, first what has waited; accept connections; no latency, no limit."""
        self._faults.latency, self._faults.rate = 0.0, None
        self._call(self._set_open(True))
        self._call(self._listen())

    def refuse(self) -> None:
        """Refuse new connections; those that exist stay."""
        self._call(self._unlisten())

    def reset(self) -> None:
        """End every connection with RST, on both sides."""
        self._call(self._each(Link.reset))

    def half_close(self, direction: Direction) -> None:
        """Send FIN one way on every connection; the other way stays open."""
        self._call(self._each(lambda link: link.half_close(direction)))

    def cut_after(
        self,
        count: int,
        direction: Direction = "up",
        how: Literal["reset", "close", "stall"] = "reset",
    ) -> Cut:
        """After ``count`` more bytes one way, do that to the connection which carried the last."""
        cut = Cut(count, direction, how)
        self._faults.cuts.append(cut)
        return cut

    def hold(self, api: str) -> Step:
        """Keep back the next such request, and what follows on its connection, until released.

        When the client gives up meanwhile, the broker still gets the request in the end.
        """
        return self._add(Step("hold", api, self._loop))

    def drop_answer(self, api: str, then: Literal["reset", "stall"] = "reset") -> Step:
        """Let the broker do what the next such request asks, and lose its answer.

        With "stall" the connection stays open and silent towards the client.
        """
        return self._add(Step(then, api, self._loop))

    def _add(self, step: Step) -> Step:
        self._faults.steps.append(step)
        return step

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((HOST, self.port))
            self._listener.setblocking(False)
            self.port = self._listener.getsockname()[1]
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _unlisten(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            # To their clients these are connected already. asyncio's own server would lose them.
            self._accept(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                client, _ = listener.accept()
                self.accepted += 1
                task = self._loop.create_task(self._serve(client))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)

    async def _serve(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        link = Link(self._faults, reader, writer)
        self._links.add(link)
        try:
            await link.run(self.target)
        finally:
            self._links.discard(link)

    async def _shut(self) -> None:
        await self._unlisten()
        await self._each(Link.reset)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # Transports close in the next turns of the loop.
        await asyncio.sleep(0.01)

    async def _count(self) -> int:
        return len(self._links)

    async def _set_open(self, is_open: bool) -> None:
        (self._faults.open.set if is_open else self._faults.open.clear)()

    async def _each(self, action: Callable[[Link], None]) -> None:
        for link in list(self._links):
            action(link)


class ClusterProxy:
    """A proxy for each broker of a cluster; answers name the proxies where they named brokers."""

    def __init__(self, cluster: KafkaCluster, listener: str = "PLAINTEXT") -> None:
        if listener not in ("PLAINTEXT", "SASL_PLAINTEXT"):
            raise ValueError(f"{listener}: nobody can rewrite what is encrypted")
        self._proxies = {node.id: Proxy((HOST, node.ports[listener])) for node in cluster.nodes}

    def __enter__(self) -> Self:
        for proxy in self._proxies.values():
            proxy.start()
        addresses = {proxy.target: proxy.address for proxy in self._proxies.values()}
        for proxy in self._proxies.values():
            proxy.map_addresses(addresses)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for proxy in self._proxies.values():
            proxy.close()

    @property
    def bootstrap(self) -> str:
        """What a client is given."""
        return ",".join(proxy.bootstrap for proxy in self._proxies.values())

    @property
    def nodes(self) -> list[Proxy]:
        """All proxies, by the ids of their brokers."""
        return list(self._proxies.values())

    def node(self, node_id: int) -> Proxy:
        """The proxy in front of a broker."""
        return self._proxies[node_id]
