"""What a connection has shown of itself: who is behind it, and until when that counts.

Rules:
- Where the broker wants SASL, a connection may ask for versions, once, and log in; anything else
  ends it. Between the choice of a mechanism and the end of the login, anything but the login is
  refused, and ends it too.
- A login that failed ends the connection, after its answer.
- Who has logged in may do so again only where logins have a lifetime.
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

VERSIONS, CHOICE, STEP = "ApiVersions", "SaslHandshake", "SaslAuthenticate"
ANONYMOUS = "User:ANONYMOUS"


class Session:
    """One connection, as handlers see it."""

    def __init__(self, users: Users, clock: Clock, lifetime: float | None = None) -> None:
        self.host = ""
        self.principal = ANONYMOUS
        self.takes_tokens = False
        self.has_failed = False
        self._has_versions = False
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
        if not self.mechanisms:
            return True
        if self.has_failed:
            return False
        if self.principal == ANONYMOUS and self._exchange is None:
            return api == CHOICE or (api == VERSIONS and not self._has_versions)
        is_valid = self._ends_ms is None or self._clock.time_ms() < self._ends_ms
        return is_valid or api in (VERSIONS, CHOICE, STEP)

    def told_versions(self) -> None:
        """The connection knows what the broker speaks."""
        self._has_versions = True

    def check_order(self, api: str) -> None:
        """Refuse what must not come between the steps of a login."""
        if self._exchange is not None and api != STEP:
            self.has_failed = True
            raise IllegalSaslState(f"Unexpected Kafka request of type {api} during SASL handshake.")

    def begin(self, mechanism: str, version: int) -> None:
        """Agree on a mechanism."""
        if not self.mechanisms or not self._may_log_in:
            raise IllegalSaslState("SaslHandshake request received after successful authentication")
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
            raise IllegalSaslState(
                "SaslAuthenticate request received after successful authentication"
            )
        try:
            answer = self._exchange.step(token)
            if self._exchange.user is not None:
                self._log_in(self._exchange.user)
        except SaslAuthenticationFailed:
            self.has_failed = True
            raise
        return answer

    @property
    def _may_log_in(self) -> bool:
        return self.principal == ANONYMOUS or self._lifetime_ms is not None

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
