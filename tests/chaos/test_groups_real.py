"""Groups of consumers against a real cluster of three whose brokers die and freeze."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.brokers import KafkaCluster
from tests.chaos.members import run_group
from tests.chaos.test_groups import KINDS, QUICK, expect_none
from tests.chaos.test_real import PARTITIONS, broker_faults, created
from tests.chaos.workload import Plan

SECONDS = 50.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", KINDS)
def test_groups_while_brokers_die_and_freeze(kafka_three: KafkaCluster, kind: str) -> None:
    topic = created(kafka_three)
    common: dict[str, Any] = {**QUICK, **KINDS[kind], "request_timeout": 2.0}
    members = [common, {**common, "auto_commit": False}]
    plan = Plan(
        seed=len(kind),
        seconds=SECONDS,
        partitions=PARTITIONS,
        faults=broker_faults(kafka_three),
        mend=kafka_three.heal,
        pauses=(0.5, 5.0),
        writers=[{"request_timeout": 2.0, "delivery_timeout": 120.0}],
        burst=6,
    )
    group = f"group-{uuid.uuid4().hex[:12]}"
    expect_none(run_group(kafka_three.bootstrap(), topic, group, plan, members))
