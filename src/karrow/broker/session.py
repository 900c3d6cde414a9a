"""What a connection has shown of itself: how it is protected and who is behind it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Session:
    """One connection, as handlers see it."""

    host: str = ""
    principal: str = "User:ANONYMOUS"
    # After a SaslHandshake in version 0 tokens come as bare frames.
    takes_tokens: bool = False

    def answer_token(self, token: bytes) -> bytes | None:  # noqa: ARG002
        """The answer to a bare SASL token; None ends the connection."""
        return None

    def allows(self, api: str) -> bool:  # noqa: ARG002
        """Whether the API may be used before anything else was shown."""
        return True

    def close(self) -> None:
        """The connection is gone."""
