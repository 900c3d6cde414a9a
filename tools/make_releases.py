"""Makes broker/releases.json: what real brokers of each release speak, as they say themselves.

Each broker is started from its Maven artifacts and asked. ``--check`` compares instead of writing;
a contract test does the same against the brokers that the tests start anyway.
"""

from __future__ import annotations

import argparse
import json
import sys
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file is out of date")
    options = parser.parse_args()
    made = text()
    if not options.check:
        TARGET.write_text(made)
    elif TARGET.read_text() != made:
        sys.exit(f"{TARGET.name} is out of date: run python -m tools.make_releases")


if __name__ == "__main__":
    main()
