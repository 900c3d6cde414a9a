from __future__ import annotations

import pytest

from karrow.errors import UnsupportedVersion
from karrow.net.versions import (
    BEFORE_NEGOTIATION,
    BrokerVersions,
    client_pauses,
    throttle_of,
)
from karrow.wire import api, messages


def answer(**ranges: tuple[int, int]) -> messages.ApiVersionsResponse:
    return messages.ApiVersionsResponse(
        api_keys=[
            messages.ApiVersionsResponse.ApiVersion(
                api_key=api(name).key, min_version=low, max_version=high
            )
            for name, (low, high) in ranges.items()
        ]
    )


def test_newest_common_version_is_chosen() -> None:
    assert BrokerVersions({"Metadata": (0, 5)}).choose("Metadata") == 5
    assert BrokerVersions({"Metadata": (0, 500)}).choose("Metadata") == 13
    assert BrokerVersions({"Fetch": (4, 18)}).choose("Fetch", most=12) == 12


def test_previews_are_left_out_unless_asked_for() -> None:
    versions = BrokerVersions({"InitProducerId": (0, 6), "ShareFetch": (0, 0)})
    assert versions.choose("InitProducerId") == 5
    assert versions.choose("InitProducerId", 6) == 6
    with pytest.raises(UnsupportedVersion, match="no common version of ShareFetch"):
        versions.choose("ShareFetch")


def test_options_limit_what_is_chosen_but_not_what_is_asked_for() -> None:
    versions = BrokerVersions({"Fetch": (4, 11), "Metadata": (0, 9)}, limits={"Fetch": 7})
    assert versions.choose("Fetch") == 7
    assert versions.choose("Fetch", most=5) == 5
    assert versions.choose("Fetch", 11) == 11
    assert versions.choose("Metadata") == 9
    with pytest.raises(UnsupportedVersion, match="no common version of Fetch"):
        BrokerVersions({"Fetch": (8, 11)}, limits={"Fetch": 7}).choose("Fetch")


def test_refusal_names_both_ranges() -> None:
    versions = BrokerVersions({"Fetch": (4, 11)})
    with pytest.raises(UnsupportedVersion, match=r"v12 .*speaks 0 to 18, the broker 4 to 11"):
        versions.choose("Fetch", 12)
    with pytest.raises(UnsupportedVersion, match="the broker does not have it"):
        versions.choose("DescribeCluster")


def test_produce_below_3_is_never_spoken_to_4_x() -> None:
    versions = BrokerVersions.of(answer(Produce=(0, 13), Fetch=(4, 18)))
    assert versions["Produce"] == (0, 13)  # as the broker says
    with pytest.raises(UnsupportedVersion, match="the broker 3 to 13"):
        versions.choose("Produce", 2)
    older = BrokerVersions.of(answer(Produce=(0, 8), Fetch=(0, 11)))
    assert older.choose("Produce", 2) == 2


def test_nonsense_ranges_are_ignored() -> None:
    said = answer(Metadata=(5, 3), Fetch=(-1, 4), Produce=(0, 9))
    said.api_keys.append(messages.ApiVersionsResponse.ApiVersion(api_key=9999, max_version=3))
    assert dict(BrokerVersions.of(said)) == {"Produce": (0, 9)}


def test_refused_features_say_what_would_carry_them() -> None:
    versions = BrokerVersions({"OffsetCommit": (2, 9)})
    with pytest.raises(UnsupportedVersion, match="v5 cannot carry x, which takes v2 to v4"):
        versions.require("OffsetCommit", 5, "x", 2, 4)
    with pytest.raises(UnsupportedVersion, match="takes v7 or newer"):
        versions.require("OffsetCommit", 5, "x", 7)
    versions.require("OffsetCommit", 7, "x", 7)


def test_every_api_of_the_old_table_exists() -> None:
    for name, (low, high) in BEFORE_NEGOTIATION.items():
        assert low in api(name).versions
        assert high in api(name).versions


@pytest.mark.parametrize(
    ("name", "version", "pauses"),
    [("Fetch", 7, False), ("Fetch", 8, True), ("DescribeCluster", 0, True), ("Produce", 5, False)],
)
def test_pause_begins_where_brokers_stopped_delaying(name: str, version: int, pauses: bool) -> None:
    assert client_pauses(name, version) is pauses


def test_throttling_is_in_seconds_and_never_negative() -> None:
    assert throttle_of(messages.FetchResponse(throttle_time_ms=1500)) == 1.5
    assert throttle_of(messages.FetchResponse(throttle_time_ms=-1)) == 0.0
    assert throttle_of(messages.SaslHandshakeResponse()) == 0.0
