"""PLAIN: user and password in one message (RFC 4616)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karrow.config.secret import Secret

__all__ = ["PlainExchange"]


class PlainExchange:
    """Says everything at once; the broker's answer has no content."""

    name = "PLAIN"

    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password

    def start(self) -> bytes:
        """User and password; the first field, for acting as somebody else, stays empty."""
        return b"\0".join((b"", self._user.encode(), self._password.reveal().encode()))

    def step(self, challenge: bytes) -> None:  # noqa: ARG002 - whatever it says, we are done
        """There is nothing more to say."""
        return
