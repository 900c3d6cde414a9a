"""FindCoordinator: which node looks after a group or a transaction."""

from __future__ import annotations

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

Found = FindCoordinatorResponse.Coordinator
BATCHED = 4
KINDS = (0, 1)


@handles("FindCoordinator")
def find_coordinator(call: Call, body: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Version 4 asks for several keys at once and is answered in another layout."""
    if call.version >= BATCHED:
        found = [_find(call, key, body.key_type) for key in body.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(call, body.key, body.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or "NONE",
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(call: Call, key: str, kind: int) -> Found:
    try:
        if kind not in KINDS:
            raise errors.InvalidRequest(f"coordinators of kind {kind} are not known here")
        node = call.cluster.coordinator_of(key, kind)
        return Found(key=key, node_id=node.node_id, host=node.host, port=node.port)
    except errors.BrokerError as error:
        return Found(
            key=key, node_id=-1, port=-1, error_code=error.code, error_message=error.message
        )
