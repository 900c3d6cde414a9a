from __future__ import annotations

import ssl

import pytest

from karrow.config import ClientConfig
from karrow.errors import AuthenticationError, ConnectError
from karrow.net.connection import Peer
from karrow.net.dial import Address, Dialer, _connect_error, _summed_up, resolve_name
from tests.unit.net.virtual import run

PEER = Peer("b1", 9092, 1)


def test_numbers_need_no_resolver() -> None:
    async def main() -> None:
        (found,) = await resolve_name("127.0.0.1", 9092)
        assert found[4] == ("127.0.0.1", 9092)
        (found,) = await resolve_name("::1", 9092)
        assert found[4] == ("::1", 9092)

    run(main())


def test_name_without_addresses() -> None:
    async def nothing(_host: str, _port: int) -> list[Address]:
        return []

    async def main() -> None:
        with pytest.raises(ConnectError, match="'b1' has no address"):
            await Dialer(ClientConfig(), resolve=nothing).dial(PEER)

    run(main())


def test_addresses_may_be_mapped_or_refused() -> None:
    asked: list[tuple[str, int]] = []

    async def resolve(host: str, port: int) -> list[Address]:
        asked.append((host, port))
        return []

    def change(host: str, port: int) -> tuple[str, int]:
        if host == "evil":
            raise ConnectError("not allowed")
        return "tunnel", port + 1

    async def main() -> None:
        dialer = Dialer(ClientConfig(address_map=change), resolve=resolve)
        for peer in (PEER, Peer("evil", 1, 2), Peer("seed", 9092)):
            with pytest.raises(ConnectError):
                await dialer.dial(peer)

    run(main())
    assert asked == [("tunnel", 9093), ("seed", 9092)]


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ConnectionRefusedError(111, "refused"), ConnectError, "refused"),
        (ssl.SSLEOFError(8, "EOF occurred"), ConnectError, "plaintext port"),
        (ConnectionResetError(104, "reset"), ConnectError, "plaintext port"),
        (OSError(113, "No route to host"), ConnectError, "No route to host"),
    ],
)
def test_failures_have_words(error: OSError, kind: type[Exception], text: str) -> None:
    found = _connect_error(error, PEER, secure=True)
    assert isinstance(found, kind)
    assert text in str(found)
    assert "1 at b1:9092" in str(found)


def test_wrong_protocol_is_not_retried() -> None:
    error = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    error.reason = "WRONG_VERSION_NUMBER"
    found = _connect_error(error, PEER, secure=True)
    assert isinstance(found, AuthenticationError)
    assert not found.retriable
    assert "plaintext port" in str(found)


def test_one_error_for_all_addresses() -> None:
    one = ConnectError("refused", broker=PEER)
    assert _summed_up([one], PEER) is one
    both = _summed_up([one, ConnectError("no route", hint="look", broker=PEER)], PEER)
    assert str(both) == "refused; no route (broker 1 at b1:9092); look"
