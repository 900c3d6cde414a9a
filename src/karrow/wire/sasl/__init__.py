"""SASL as bytes in and bytes out; no I/O, no clock.

What a connection does with the option ``sasl``, for each authentication:

    exchange = await session(mechanism, host)
    token = exchange.start()
    while token is not None:
        token = exchange.step(answer_of_the_broker_to(token))
    finish(exchange)

``step`` and ``finish`` raise AuthenticationError when the broker is not what it should be;
``refused`` makes the error for a broker that says no.
"""

from __future__ import annotations

import inspect
from typing import Any

from karrow.config.sasl import (
    Exchange,
    Mechanism,
    MskIam,
    OAuthBearer,
    Plain,
    Scram,
    SessionFactory,
    Token,
    from_env,
)
from karrow.errors import AuthenticationError
from karrow.wire.sasl.bearer import BearerExchange
from karrow.wire.sasl.plain import PlainExchange
from karrow.wire.sasl.scram import ScramExchange

__all__ = [
    "BearerExchange",
    "Exchange",
    "Mechanism",
    "MskIam",
    "OAuthBearer",
    "Plain",
    "PlainExchange",
    "Scram",
    "ScramExchange",
    "SessionFactory",
    "Token",
    "expires_at",
    "finish",
    "from_env",
    "refused",
    "session",
]


async def session(mechanism: Mechanism, host: str) -> Exchange:
    """An exchange for one authentication with the broker called ``host``.

    Providers of tokens and keys are called here; nothing else takes time.
    """
    match mechanism:
        case Plain(user=user, password=password):
            return PlainExchange(user, password)
        case Scram():
            return ScramExchange(mechanism)
        case OAuthBearer():
            return BearerExchange(await mechanism.token(host), mechanism.extensions)
        case MskIam():
            return BearerExchange(await mechanism.token(host), hint=mechanism.hint)
        case SessionFactory():
            made = mechanism.session(host)
            return await made if inspect.isawaitable(made) else made
        case _:
            return mechanism


def finish(exchange: Exchange) -> None:
    """Check, after the last step, that the exchange is content with the broker as well."""
    if not getattr(exchange, "done", True):
        raise AuthenticationError(
            f"the broker ended {exchange.name} before it had proved that it knows the password"
        )


def expires_at(exchange: Exchange) -> float | None:
    """When the credentials that were used expire, in seconds since 1970; None when never."""
    moment: float | None = getattr(exchange, "expires_at", None)
    return moment


def refused(exchange: Exchange, message: str | None, **context: Any) -> AuthenticationError:
    """The error for a broker that said no; ``message`` is its own text."""
    text = f"{exchange.name} failed: {message or 'the broker gave no reason'}"
    return AuthenticationError(text, hint=getattr(exchange, "hint", None), **context)
