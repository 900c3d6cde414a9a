"""ApiVersions: what this broker speaks.

Versions: 3 names the client's software (KIP-511) and tells features (KIP-584), 4 also features that
begin with level 0.
"""

from __future__ import annotations

import re

from karrow.broker.call import Call, handles
from karrow.errors import InvalidRequest, UnsupportedVersion
from karrow.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from karrow.wire.table import api

Key = ApiVersionsResponse.ApiVersion
Supported = ApiVersionsResponse.SupportedFeatureKey
Finalized = ApiVersionsResponse.FinalizedFeatureKey
SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
NAMED = 3
FROM_ZERO = 4


@handles("ApiVersions")
def api_versions(call: Call, body: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """A body of None means a version the broker lacks: the answer names the range."""
    release = call.cluster.release
    if body is None:
        first, last = release.supported["ApiVersions"]
        known = Key(api_key=api("ApiVersions").key, min_version=first, max_version=last)
        return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[known])
    if call.version >= NAMED and not _is_named(body):
        return ApiVersionsResponse(error_code=InvalidRequest.code)
    call.session.told_versions()
    keys = [
        Key(api_key=api(name).key, min_version=low, max_version=high)
        for name, (low, high) in release.supported.items()
    ]
    return ApiVersionsResponse(
        api_keys=sorted(keys, key=lambda item: item.api_key),
        supported_features=[
            Supported(name=name, min_version=low, max_version=high)
            for name, (low, high) in release.features.items()
            if low > 0 or call.version >= FROM_ZERO
        ],
        finalized_features_epoch=0 if release.finalized else -1,
        finalized_features=[
            Finalized(name=name, min_version_level=level, max_version_level=level)
            for name, level in release.finalized.items()
        ],
    )


def _is_named(body: ApiVersionsRequest) -> bool:
    names = (body.client_software_name, body.client_software_version)
    return all(SOFTWARE.fullmatch(name) for name in names)
