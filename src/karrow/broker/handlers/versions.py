"""ApiVersions: what this broker speaks."""

from __future__ import annotations

from karrow.broker.call import Call, handles
from karrow.errors import UnsupportedVersion
from karrow.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from karrow.wire.table import api


@handles("ApiVersions")
def api_versions(call: Call, body: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """A body of None means a version the broker lacks: the answer names the range (KIP-511)."""
    if body is None:
        first, last = call.cluster.release.supported["ApiVersions"]
        key = ApiVersionsResponse.ApiVersion(api_key=18, min_version=first, max_version=last)
        return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[key])
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=api(name).key, min_version=low, max_version=high)
        for name, (low, high) in call.cluster.release.supported.items()
    ]
    return ApiVersionsResponse(api_keys=sorted(keys, key=lambda item: item.api_key))
