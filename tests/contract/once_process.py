"""A driver without Spark: batches through the protocol, and a log of what Spark would know."""

from __future__ import annotations

import json
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from karrow.aio.producing.coordinator_calls import Identity
from karrow.spark import pool
from karrow.spark.exactly.batches import Batches
from karrow.spark.exactly.crash import crash_point
from karrow.spark.exactly.ledger import new_ledger
from karrow.spark.exactly.part import PartProducer
from karrow.spark.exactly.settings import Settings
from karrow.spark.exactly.transaction import BlockingTransaction

PARTITIONS = 2
ROWS = 3


def rows(batch: int, partition: int) -> list[bytes]:
    """What a batch has for a partition."""
    return [b"%d-%d-%d" % (batch, partition, row) for row in range(ROWS)]


class Process:
    """One life of a driver."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task = task
        self._settings = Settings(task["bootstrap"], task["sink_id"], {"linger": 0})
        ledger = new_ledger(task["ledger"], task["sink_id"], task["topic"], None)
        transaction = BlockingTransaction(self._settings.config, ledger)
        self._batches = Batches(transaction, sink_id=task["sink_id"], retries=2)

    def run(self) -> None:
        """Go on behind the last batch that the log has, to the last that there is."""
        run, log = str(uuid.uuid4()), Path(self._task["log"])
        done = int(log.read_text()) if log.exists() else -1
        for batch in range(done + 1, self._task["batches"]):
            self._batches.run("q", run, batch, self._writing(batch))
            new = log.with_suffix(".new")
            new.write_text(str(batch))
            new.rename(log)

    def _writing(self, batch: int) -> Any:
        def write(who: Identity, version: int) -> int:
            crash_point("prepared")
            with ThreadPoolExecutor(PARTITIONS) as tasks:
                found = list(
                    tasks.map(lambda one: self._part(batch, one, who, version), range(PARTITIONS))
                )
            crash_point("written")
            return sum(found)

        return write

    def _part(self, batch: int, partition: int, who: Identity, version: int) -> int:
        crash_point("task-begun")
        client = pool.client(self._settings.client)
        part = PartProducer(client, who=who, version=version, **self._settings.of_producer)
        try:
            for value in rows(batch, partition):
                column = pa.array([partition], pa.int32())
                table = pa.table({"value": [value], "partition": column})
                part.write(self._task["topic"], table.to_batches())
                crash_point("task-wrote")
            return sum(one.rows for one in part.written())
        finally:
            part.close(timeout=0)


if __name__ == "__main__":
    Process(json.loads(sys.argv[1])).run()
