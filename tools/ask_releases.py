"""Makes broker/releases.json: what real brokers of each release speak, as they say themselves.

Each broker is started from its Maven artifacts and asked, which is too slow for ``make lint``: a
contract test compares instead, with the brokers that the tests start anyway.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.brokers import KafkaCluster, RawConnection, ZooKeeper

TARGET = Path(__file__).resolve().parent.parent / "src" / "karrow" / "broker" / "releases.json"
NAMED = {"client_software_name": "karrow", "client_software_version": "0"}
RELEASES = {"2.8": "2.8.2", "3.9": "3.9.2", "4.3": "4.3.1"}


def said_by(cluster: KafkaCluster) -> dict[str, Any]:
    """What a broker says of itself."""
    with RawConnection("127.0.0.1", cluster.ports["PLAINTEXT"][0]) as connection:
        answer = connection.request("ApiVersions", NAMED)
        ranges = connection.api_versions()
    return {
        "apis": {name: list(span) for name, span in sorted(ranges.items())},
        "features": {f.name: [f.min_version, f.max_version] for f in answer.supported_features},
        "finalized": {f.name: f.max_version_level for f in answer.finalized_features},
    }


def text() -> str:
    """The file's content, a line for each release."""
    zookeeper = ZooKeeper()
    found = {}
    try:
        for release, version in RELEASES.items():
            with KafkaCluster(version, zookeeper=zookeeper) as cluster:
                found[release] = said_by(cluster)
    finally:
        zookeeper.stop()
    lines = [f"{json.dumps(name)}:{json.dumps(facts)}" for name, facts in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(text())
