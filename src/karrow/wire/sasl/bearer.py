"""OAUTHBEARER: a token and extensions in one message (RFC 7628, KIP-255, KIP-342)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from karrow.errors import AuthenticationError

if TYPE_CHECKING:
    from karrow.config.token import Token

__all__ = ["BearerExchange"]

_SEPARATOR = "\x01"
_SHOWN = ("status", "scope", "error", "error_description", "openid-configuration")
_MAX_SHOWN = 200


class BearerExchange:
    """Shows the token; an answer with content is the broker's reason to refuse it.

    ``expires_at`` is when to have authenticated again, in seconds since 1970.
    """

    name = "OAUTHBEARER"

    def __init__(
        self,
        token: Token,
        extensions: Mapping[str, str] | None = None,
        *,
        hint: str | None = None,
    ) -> None:
        self.done = False
        self.expires_at = token.expires_at
        self.hint = hint
        self._token = token
        self._extensions = {**(extensions or {}), **token.extensions}

    def start(self) -> bytes:
        """The token, then each extension."""
        fields = [f"auth=Bearer {self._token.value.reveal()}"]
        fields += [f"{name}={value}" for name, value in self._extensions.items()]
        return _SEPARATOR.join(["n,,", *fields, _SEPARATOR]).encode()

    def step(self, challenge: bytes) -> None:
        """Nothing more to say if the broker has nothing to say."""
        if challenge:
            raise AuthenticationError(
                f"{self.name}: the broker refused the token: {_reason(challenge)}", hint=self.hint
            )
        self.done = True


def _reason(challenge: bytes) -> str:
    """What the broker's JSON says, cut short and without control characters."""
    try:
        answer = json.loads(bytes(challenge[:65536]))
        shown = ", ".join(f"{key} {answer[key]}" for key in _SHOWN if answer.get(key))
    except (ValueError, AttributeError, RecursionError):
        shown = bytes(challenge[:_MAX_SHOWN]).decode("ascii", "replace")
    return "".join(c if c.isprintable() else "?" for c in shown[:_MAX_SHOWN]) or "no reason given"
