"""What the embedded broker says it speaks: as real brokers say, and tested here."""

from __future__ import annotations

import json
import os
from importlib import resources

import pytest
from ask_releases import NAMED, said_by

from karrow import wire
from karrow.broker.call import HANDLERS
from karrow.broker.releases import release
from tests.brokers import KafkaCluster
from tests.fix_any import COVERAGE, AnyKafka

TABLE = json.loads(resources.files("karrow.broker").joinpath("releases.json").read_text())


@pytest.mark.kafka(every_release=True)
def test_brokers_speak_what_the_table_says(every_kafka: AnyKafka) -> None:
    table = TABLE.get(every_kafka.version)
    if isinstance(every_kafka.broker, KafkaCluster):
        if table is None:
            pytest.skip("the embedded broker does not pass for this release")
        assert said_by(every_kafka.broker) == table
        return
    with every_kafka.connect() as connection:
        answer = connection.request("ApiVersions", NAMED)
        spoken = connection.api_versions()
    assert spoken == {
        name: (low, min(high, wire.api(name).versions[-1]))
        for name, (low, high) in table["apis"].items()
        if name in HANDLERS
    }
    features = {f.name: [f.min_version, f.max_version] for f in answer.supported_features}
    finalized = {f.name: f.max_version_level for f in answer.finalized_features}
    assert (features, finalized) == (table["features"], table["finalized"])


def test_every_api_of_the_embedded_broker_was_asked(request: pytest.FixtureRequest) -> None:
    """Runs last, see tests/fix_any.py."""
    coverage = request.config.stash[COVERAGE]
    if os.environ.get("PYTEST_XDIST_WORKER"):
        pytest.skip("each worker of xdist runs but a part of the contract tests")
    if coverage.missing:
        count = len(coverage.missing)
        pytest.skip(f"{count} contract tests do not run, such as {coverage.missing[0]}")
    assert set(release(None, HANDLERS).supported) - coverage.asked == set()
