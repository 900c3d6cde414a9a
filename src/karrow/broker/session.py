"""What a connection has shown of itself: who is behind it, and until when that counts.

Rules:
- Where the broker wants SASL, a connection may ask for versions and log in; anything else ends it.
- A login that failed ends the connection, after its answer.
- With a lifetime, a login counts for so long: after that anything but a new login ends the
  connection (KIP-368). The new one must be by the same mechanism and the same user.
- After a SaslHandshake in version 0, tokens come as bare frames until the login is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow.broker.authentication import ServerExchange, new_exchange
from karrow.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism

if TYPE_CHECKING:
    from karrow.broker.clock import Clock
    from karrow.broker.users import Users

OPEN_APIS = frozenset({"ApiVersions", "SaslAuthenticate", "SaslHandshake"})
ANONYMOUS = "User:ANONYMOUS"


class Session:
    """One connection, as handlers see it."""

    def __init__(self, users: Users, clock: Clock, lifetime: float | None = None) -> None:
        self.host = ""
        self.principal = ANONYMOUS
        self.takes_tokens = False
        self.has_failed = False
        self._users = users
        self._clock = clock
        self._lifetime_ms = None if lifetime is None else round(lifetime * 1000)
        self._ends_ms: int | None = None
        self._mechanism: str | None = None
        self._exchange: ServerExchange | None = None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """What the broker offers; nothing means that nobody has to log in."""
        return self._users.mechanisms

    def allows(self, api: str) -> bool:
        """Whether a request may be taken up."""
        if not self.mechanisms or api in OPEN_APIS:
            return True
        if self.principal == ANONYMOUS or self.has_failed:
            return False
        return self._ends_ms is None or self._clock.time_ms() < self._ends_ms

    def begin(self, mechanism: str, version: int) -> None:
        """Agree on a mechanism."""
        if not self.mechanisms:
            raise IllegalSaslState("SASL is not enabled on this listener")
        known = self._mechanism if self.principal != ANONYMOUS else None
        if mechanism not in self.mechanisms or known not in (None, mechanism):
            self.has_failed = True
            raise UnsupportedSaslMechanism("Unsupported SASL mechanism " + mechanism)
        self._mechanism = mechanism
        self._exchange = new_exchange(self._users, mechanism)
        self.takes_tokens = version == 0

    def authenticate(self, token: bytes) -> bytes:
        """Take a client's message; raises when the login has failed."""
        if self._exchange is None:
            raise IllegalSaslState("SaslAuthenticate request received before a SaslHandshake")
        try:
            answer = self._exchange.step(token)
            if self._exchange.user is not None:
                self._log_in(self._exchange.user)
        except SaslAuthenticationFailed:
            self.has_failed = True
            raise
        return answer

    @property
    def lifetime_ms(self) -> int:
        """For how long the login counts, 0 for ever or before it is complete."""
        if self._exchange is not None or self._lifetime_ms is None:
            return 0
        return self._lifetime_ms

    def answer_token(self, token: bytes) -> bytes | None:
        """The answer to a bare token; None ends the connection."""
        try:
            return self.authenticate(token)
        except (SaslAuthenticationFailed, IllegalSaslState):
            return None

    def _log_in(self, user: str) -> None:
        principal = f"User:{user}"
        if self.principal not in (ANONYMOUS, principal):
            raise SaslAuthenticationFailed("Cannot change principals during re-authentication")
        self.principal = principal
        self.takes_tokens = False
        self._exchange = None
        if self._lifetime_ms is not None:
            self._ends_ms = self._clock.time_ms() + self._lifetime_ms
