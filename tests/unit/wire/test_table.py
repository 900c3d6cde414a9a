from __future__ import annotations

import subprocess
import sys

import pytest

from karrow import wire
from karrow.errors import LocalProtocolError, UnsupportedVersion
from karrow.wire.table import names, schema


def test_versions_dropped_by_kafka_4_are_there() -> None:
    assert wire.versions("Produce") == (0, 13, 13)
    assert wire.versions("Fetch") == (0, 18, 18)
    assert wire.versions("RequestHeader").first == 0


@pytest.mark.parametrize(
    "name", ["LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"]
)
def test_apis_gone_in_kafka_4_are_there(name: str) -> None:
    assert wire.versions(name).first == 0


def test_preview_versions_are_not_stable() -> None:
    assert wire.versions("InitProducerId") == (0, 6, 5)
    assert wire.api("ShareFetch").unstable == {0}


def test_every_request_has_a_response_with_the_same_versions() -> None:
    for api in wire.apis().values():
        response = schema(f"{api.name}Response")
        assert (response.key, response.versions) == (api.key, api.versions)
        assert response.flexible == api.flexible


def test_api_keys_are_unique_and_in_order() -> None:
    keys = [api.key for api in wire.apis().values()]
    assert keys == sorted(set(keys))


def test_api_is_found_by_key_and_by_name() -> None:
    assert wire.api(3) is wire.api("Metadata") or wire.api(3) == wire.api("Metadata")


def test_unknown_api_names_the_nearest() -> None:
    with pytest.raises(LocalProtocolError, match="did you mean 'Metadata'"):
        wire.api("Metdata")
    with pytest.raises(LocalProtocolError, match="no API 999"):
        wire.api(999)


def test_unknown_message_names_the_nearest() -> None:
    with pytest.raises(LocalProtocolError, match="did you mean 'FetchRequest'"):
        wire.message("FetchReqest")


def test_unknown_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedVersion, match="versions 0 to 18, not 19"):
        wire.encode("Fetch", 19, {})


def test_request_header_follows_the_flexible_versions() -> None:
    metadata = wire.api("Metadata")
    assert [metadata.request_header_version(version) for version in (0, 8, 9, 13)] == [1, 1, 2, 2]
    assert [metadata.response_header_version(version) for version in (0, 8, 9)] == [0, 0, 1]


def test_header_of_a_version_newer_than_the_table_is_flexible() -> None:
    assert wire.api("Metadata").request_header_version(99) == 2


def test_apis_that_never_became_flexible_keep_the_old_header() -> None:
    assert wire.api("SaslHandshake").request_header_version(1) == 1
    assert wire.api("OffsetDelete").response_header_version(0) == 0


def test_api_versions_response_header_is_never_flexible() -> None:
    api = wire.api("ApiVersions")
    assert api.request_header_version(3) == 2
    assert api.response_header_version(3) == 0


def test_first_controlled_shutdown_has_the_oldest_header() -> None:
    api = wire.api("ControlledShutdown")
    assert [api.request_header_version(version) for version in (0, 1, 3)] == [0, 1, 2]


def test_data_messages_are_there() -> None:
    for name in ("ConsumerProtocolSubscription", "EndTxnMarker", "DefaultPrincipalData"):
        assert name in names()


def test_importing_wire_reads_no_table() -> None:
    code = "import karrow.wire, karrow.wire.table as t; print(t.entries.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
