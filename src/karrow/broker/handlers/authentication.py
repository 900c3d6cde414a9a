"""SaslHandshake and SaslAuthenticate: logging in."""

from __future__ import annotations

from karrow.broker.call import Call, handles
from karrow.errors import BrokerError, IllegalSaslState
from karrow.wire.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@handles("SaslHandshake")
def sasl_handshake(call: Call, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """After version 0 tokens travel without a header, after version 1 in SaslAuthenticate."""
    answer = SaslHandshakeResponse(mechanisms=list(call.session.mechanisms))
    try:
        call.session.begin(body.mechanism, call.version)
    except IllegalSaslState as error:
        answer.error_code, answer.mechanisms = error.code, []
    except BrokerError as error:
        answer.error_code = error.code
    return answer


@handles("SaslAuthenticate")
def sasl_authenticate(call: Call, body: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """One step of the mechanism; a failed one is the connection's last."""
    answer = SaslAuthenticateResponse()
    try:
        answer.auth_bytes = call.session.authenticate(bytes(body.auth_bytes))
        answer.session_lifetime_ms = call.session.lifetime_ms
    except BrokerError as error:
        answer.error_code, answer.error_message = error.code, error.message
    return answer
