"""Which version of an API to speak on a connection. No I/O.

Rules:
- A broker's ranges belong to one connection and are read again at every reconnect: an upgrade may
  widen them and a downgrade may shrink them.
- The newest version both sides know is taken, except previews, which must be asked for by number.
- A version that was asked for is used or refused, never replaced. What the options say is the
  newest to take by itself; who asks for a version is not bound by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from karrow.errors import UnsupportedVersion
from karrow.wire import api, apis

if TYPE_CHECKING:
    from karrow.wire import Api
    from karrow.wire.messages import ApiVersionsResponse

Range = tuple[int, int]

# 4.0 removed the message formats of Produce 0 to 2 but goes on advertising them, for the sake of
# old librdkafka (KIP-896); what it really dropped can be told from Fetch.
_FIRST_FETCH_OF_4_0 = 4
_FIRST_PRODUCE_OF_4_0 = 3

# What Kafka 0.9 speaks; it has no ApiVersions and closes the connection when asked.
BEFORE_NEGOTIATION: Mapping[str, Range] = {
    "Produce": (0, 1),
    "Fetch": (0, 1),
    "ListOffsets": (0, 0),
    "Metadata": (0, 0),
    "OffsetCommit": (0, 2),
    "OffsetFetch": (0, 1),
    "FindCoordinator": (0, 0),
    "JoinGroup": (0, 0),
    "Heartbeat": (0, 0),
    "LeaveGroup": (0, 0),
    "SyncGroup": (0, 0),
    "DescribeGroups": (0, 0),
    "ListGroups": (0, 0),
}

# The version from which a throttled answer comes at once and the client is to pause (KIP-219);
# before it the broker held the answer back. What is not listed came later and has paused always.
_CLIENT_PAUSES_SINCE = {
    "Produce": 6,
    "Fetch": 8,
    "ListOffsets": 3,
    "Metadata": 6,
    "OffsetCommit": 4,
    "OffsetFetch": 4,
    "FindCoordinator": 2,
    "JoinGroup": 3,
    "Heartbeat": 2,
    "LeaveGroup": 2,
    "SyncGroup": 2,
    "DescribeGroups": 2,
    "ListGroups": 2,
    "ApiVersions": 2,
    "CreateTopics": 3,
    "DeleteTopics": 2,
    "DeleteRecords": 1,
    "InitProducerId": 1,
    "AddPartitionsToTxn": 1,
    "AddOffsetsToTxn": 1,
    "EndTxn": 1,
    "TxnOffsetCommit": 1,
    "DescribeAcls": 1,
    "CreateAcls": 1,
    "DeleteAcls": 1,
    "DescribeConfigs": 2,
    "AlterConfigs": 1,
    "AlterReplicaLogDirs": 1,
    "DescribeLogDirs": 1,
    "CreatePartitions": 1,
    "CreateDelegationToken": 1,
    "RenewDelegationToken": 1,
    "ExpireDelegationToken": 1,
    "DescribeDelegationToken": 1,
    "DeleteGroups": 1,
}


def throttle_of(answer: Any) -> float:
    """Seconds by which a broker slows a client down that is over its quota."""
    throttle: int = getattr(answer, "throttle_time_ms", 0)
    return max(throttle, 0) / 1000


def client_pauses(name: str, version: int) -> bool:
    """Whether a throttled answer asks its connection for silence, or has itself come late."""
    return version >= _CLIENT_PAUSES_SINCE.get(name, 0)


class BrokerVersions(Mapping[str, Range]):
    """The ranges that one broker speaks by API name, and its finalized features."""

    def __init__(
        self,
        ranges: Mapping[str, Range],
        features: Mapping[str, int] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._ranges = dict(ranges)
        self.features = dict(features or {})
        # The newest versions to take without being asked to.
        self._limits = dict(limits or {})
        self._chosen: dict[str, int] = {}

    @classmethod
    def of(
        cls, answer: ApiVersionsResponse, limits: Mapping[str, int] | None = None
    ) -> BrokerVersions:
        """Read an ApiVersions answer; APIs that we do not know are left out."""
        known = {item.key: name for name, item in apis().items()}
        ranges = {
            known[item.api_key]: (item.min_version, item.max_version)
            for item in answer.api_keys
            if item.api_key in known and 0 <= item.min_version <= item.max_version
        }
        features = {item.name: item.max_version_level for item in answer.finalized_features}
        return cls(ranges, features, limits)

    def __getitem__(self, name: str) -> Range:
        return self._ranges[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def choose(self, name: str, asked: int | None = None, *, most: int | None = None) -> int:
        """The version to send: the one asked for, else the newest that both sides have.

        ``most`` is the newest version that can carry what the caller has.
        """
        if asked is None and most is None and name in self._chosen:
            return self._chosen[name]
        target = api(name)
        if asked is not None:
            self._require(target, asked)
            return asked
        version = self._newest(target, most)
        if most is None:
            self._chosen[name] = version
        return version

    def usable(self, name: str) -> Range:
        """The range the broker really has, which may be less than it says; (0, -1) for none."""
        low, high = self._ranges.get(name, (0, -1))
        if name == "Produce" and self._ranges.get("Fetch", (0, 0))[0] >= _FIRST_FETCH_OF_4_0:
            low = max(low, _FIRST_PRODUCE_OF_4_0)
        return low, high

    def require(self, name: str, version: int, feature: str, since: int, until: int = 99) -> None:
        """Refuse a version that cannot carry what was asked for."""
        if not since <= version <= until:
            span = f"v{since}" if until == since else f"v{since} to v{until}"
            need = f"v{since} or newer" if until > api(name).versions[-1] else span
            raise self._unsupported(
                api(name), f"{name} v{version} cannot carry {feature}, which takes {need}"
            )

    def _require(self, target: Api, asked: int) -> None:
        low, high = self.usable(target.name)
        if asked not in target.versions or not low <= asked <= high:
            raise self._unsupported(target, f"{target.name} v{asked} is not possible")

    def _newest(self, target: Api, most: int | None) -> int:
        low, high = self.usable(target.name)
        limits = (high, most, self._limits.get(target.name))
        top = min(limit for limit in limits if limit is not None)
        common = (v for v in target.versions if low <= v <= top and v not in target.unstable)
        version = max(common, default=None)
        if version is None:
            raise self._unsupported(target, f"there is no common version of {target.name}")
        return version

    def _unsupported(self, target: Api, what: str) -> UnsupportedVersion:
        ours = f"karrow speaks {target.versions[0]} to {target.versions[-1]}"
        low, high = self.usable(target.name)
        theirs = f"the broker {low} to {high}" if low <= high else "the broker does not have it"
        return UnsupportedVersion(f"{what}: {ours}, {theirs}", api=target.name)
