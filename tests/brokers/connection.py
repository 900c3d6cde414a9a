"""A blocking connection of wire and socket alone, so that the harness needs no client."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from types import TracebackType
from typing import Any, Self

from karrow import wire


class RawConnection:
    """Sends requests and waits for their answers, one connection, one thread."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        self.socket = socket.create_connection((host, port), timeout)
        if tls is not None:
            try:
                self.socket = tls.wrap_socket(self.socket, server_hostname=server_name or host)
            except OSError:
                self.socket.close()
                raise
        self._framing = wire.ClientFraming("karrow-tests")
        self._frames: deque[memoryview] = deque()
        self._versions: dict[str, tuple[int, int]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, name: str, version: int, body: dict[str, Any] | wire.Struct) -> None:
        """Send a request without waiting for its answer."""
        _, parts = self._framing.send(name, version, body)
        self.socket.sendall(b"".join(parts))

    def send_token(self, token: bytes) -> bytes:
        """Exchange bare SASL tokens, as after a SaslHandshake in version 0."""
        self.socket.sendall(b"".join(self._framing.send_token(token)))
        answer: bytes = self.receive().auth_bytes
        return answer

    def receive(self) -> Any:
        """The next answer, decoded."""
        while not self._frames:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._frames.extend(self._framing.frames.feed(data))
        return self._framing.receive(self._frames.popleft()).message

    def request(
        self, name: str, body: dict[str, Any] | wire.Struct, version: int | None = None
    ) -> Any:
        """The answer to a request, by default in the newest version both sides know."""
        self.send(name, self.newest(name) if version is None else version, body)
        return self.receive()

    def newest(self, name: str) -> int:
        """The newest version of an API that both sides know."""
        low, high = self.api_versions()[name]
        return max(version for version in wire.api(name).versions if low <= version <= high)

    def api_versions(self) -> dict[str, tuple[int, int]]:
        """First and last version of each API the broker has and we know."""
        if self._versions is None:
            keys = {api.key: api.name for api in wire.apis().values()}
            answer = self.request("ApiVersions", {}, 0)
            self._versions = {
                keys[item.api_key]: (item.min_version, item.max_version)
                for item in answer.api_keys
                if item.api_key in keys
            }
        return self._versions
