"""The sink without a promise of once: a driver that dies while it writes, and is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.brokers import KafkaCluster
from tests.spark.once import Case, Driver, wait_for

ROWS = 300_000
# Slow enough to be killed in the middle.
SLOW = {"kafka.batch.size": "1000", "kafka.max.in.flight.requests.per.connection": "1"}
SEVERAL_TASKS = {
    "spark.sql.files.maxPartitionBytes": "1000000",
    "spark.sql.files.openCostInBytes": "0",
}


class Plain(Case):
    """A source, a checkpoint, and a sink that is a format."""

    def program(self, **more: str) -> Driver:
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, **more}
        return self.driver(sink=options, settings=SEVERAL_TASKS)


@pytest.mark.timeout(1800)
def test_a_driver_that_is_killed_while_it_writes_loses_no_row(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    case = Plain(kafka, tmp_path).add(1).add(1, rows=ROWS).add(1)
    with case.program(**SLOW) as driver:
        wait_for(lambda: case.offsets() > 1000 or driver.has_ended, "no rows came")
        driver.kill()
    before = case.offsets()
    assert 1000 < before < ROWS, driver.log()[-3000:]
    with case.program() as driver:
        driver.succeeded()
    found, wanted = case.found(), case.wanted()
    assert set(found) == set(wanted)
    assert len(found) > len(wanted)  # some were written twice, as may happen
