"""A cluster without sockets: requests are called, and time stands still until told."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from karrow import wire
from karrow.broker import handlers as _handlers  # noqa: F401 - registers every handler
from karrow.broker.call import HANDLERS, Call
from karrow.broker.clock import ManualClock
from karrow.broker.cluster import Cluster, Endpoint
from karrow.broker.releases import release
from karrow.broker.session import Session
from karrow.broker.store import MemoryStore, Store


class Bare:
    """A cluster whose handlers are called directly, through the encoding of their versions."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        version: str | None = None,
        clock: ManualClock | None = None,
        store: Store | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.cluster = Cluster(
            clock=self.clock,
            store=store or MemoryStore(),
            seed=0,
            release=release(version, HANDLERS),
        )
        for node_id in range(1, nodes + 1):
            self.cluster.nodes[node_id] = Endpoint(node_id, "127.0.0.1", 9000 + node_id)
        self.cluster.recover()
        self.session = Session(self.cluster.users, self.clock)

    def ask(
        self, api: str, body: Mapping[str, Any], version: int | None = None, *, node_id: int = 1
    ) -> Any:
        """The answer as a client would read it."""
        if version is None:
            version = self.cluster.release.supported[api][1]
        request = wire.decode(api, version, wire.encode(api, version, body), "request")
        call = Call(self.cluster, node_id, self.session, api, version, "test")
        answer = HANDLERS[api](call, request)
        assert answer is not None
        assert not inspect.isawaitable(answer)
        data = wire.encode(api, version, answer, "response")
        return wire.decode(api, version, data, "response")
