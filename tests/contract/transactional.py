"""A producer of raw requests, for what brokers say of transactions and sequences.

Real brokers complete transactions a moment after they have answered: what says so is asked again.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from karrow import errors
from karrow.records import BatchBuilder, RecordReader
from tests.brokers import RawConnection
from tests.fix_any import AnyKafka

PATIENCE = 20.0
# A coordinator that is not there yet, and one that is busy with what was before.
PASSING = {
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR",
    "CONCURRENT_TRANSACTIONS",
}


def name_of(code: int) -> str:
    """An error by Kafka's name."""
    return errors.for_code(code).name if code else "NONE"


def new_id(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def batch(
    *values: bytes,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int | None = None,
) -> bytes:
    """A batch of records with these values, now unless told."""
    builder = BatchBuilder()
    stamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    for value in values or (b"x",):
        builder.append(None, value, timestamp_ms=stamp)
    return builder.build(
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        transactional=transactional,
    )


@dataclass
class Producer:
    """What a producer knows of itself; its calls give the error's name."""

    kafka: AnyKafka
    transactional_id: str | None = None
    timeout_ms: int = 60_000
    id: int = -1
    epoch: int = -1
    connection: RawConnection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = self.kafka.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.connection.close()

    @property
    def identity(self) -> tuple[int, int]:
        return self.id, self.epoch

    @property
    def version(self) -> int:
        """Of transactions: 2 where the end begins a new epoch."""
        return 2 if self.kafka.number >= (4, 0) else 1

    def ask(self, api: str, body: dict[str, Any], version: int | None = None) -> Any:
        """An answer, once the coordinator has one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.connection.request(api, body, version)
            if name_of(answer.error_code) not in PASSING:
                return answer
            assert time.monotonic() < deadline, name_of(answer.error_code)
            if self.transactional_id:
                self.find_coordinator()
            time.sleep(0.01)

    def find_coordinator(self) -> None:
        """Have the coordinator's own topic made."""
        body: dict[str, Any] = {"key_type": 1, "key": self.transactional_id}
        if self.connection.newest("FindCoordinator") >= 4:
            body = {"key_type": 1, "coordinator_keys": [self.transactional_id]}
        self.connection.request("FindCoordinator", body)

    def init(self, version: int | None = None, *, recover: bool = False) -> str:
        """Get an id and epoch; ``recover`` names those it had (KIP-360)."""
        body: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.timeout_ms,
        }
        if recover:
            body |= {"producer_id": self.id, "producer_epoch": self.epoch}
        answer = self.ask("InitProducerId", body, version)
        if answer.error_code == 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return name_of(answer.error_code)

    def produce(
        self,
        topic: str,
        *values: bytes,
        sequence: int,
        partition: int = 0,
        version: int | None = None,
        transactional: bool | None = None,
        epoch: int | None = None,
    ) -> tuple[str, int]:
        """Send one batch; gives the error's name and the offset."""
        transactional = bool(self.transactional_id) if transactional is None else transactional
        identity = (self.id, self.epoch if epoch is None else epoch)
        data = batch(*values, producer=identity, sequence=sequence, transactional=transactional)
        return self.send(topic, data, partition=partition, version=version)

    def send(
        self, topic: str, data: bytes, *, partition: int = 0, version: int | None = None
    ) -> tuple[str, int]:
        newest = min(self.connection.newest("Produce"), 12)  # the last that names topics
        body = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [
                {"name": topic, "partition_data": [{"index": partition, "records": data}]}
            ],
        }
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.connection.request("Produce", body, version or newest)
            found = answer.responses[0].partition_responses[0]
            code = name_of(found.error_code)
            # The second is what older versions say instead of the first.
            if code not in ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS"):
                return code, found.base_offset
            assert time.monotonic() < deadline, code
            time.sleep(0.01)

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[str]:
        """Add partitions as clients of transaction version 1 do."""
        body = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
        }
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.connection.request("AddPartitionsToTxn", body, version)
            found = answer.results_by_topic_v3_and_below[0].results_by_partition
            codes = {p.partition_index: name_of(p.partition_error_code) for p in found}
            if not set(codes.values()) & PASSING:
                return [codes[index] for index in partitions]
            assert time.monotonic() < deadline, codes
            time.sleep(0.01)

    def end(self, *, commit: bool, version: int | None = None) -> str:
        """Commit or abort, and take the identity that the answer gives."""
        answer = self.ask("EndTxn", self.ending(commit=commit), version)
        if answer.error_code == 0 and answer.producer_id >= 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return name_of(answer.error_code)

    def ending(self, *, commit: bool) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }

    def describe(self) -> Any:
        """What the coordinator says of the transactional id."""
        body = {"transactional_ids": [self.transactional_id]}
        return self.connection.request("DescribeTransactions", body).transaction_states[0]

    def settle(self) -> str:
        """Wait until the transaction is complete; gives its state."""
        deadline = time.monotonic() + PATIENCE
        while True:
            state: str = self.describe().transaction_state
            if not state.startswith("Prepare"):
                return state
            assert time.monotonic() < deadline, state
            time.sleep(0.01)


def committed(kafka: AnyKafka, topic: str, partition: int = 0) -> list[bytes | None]:
    """The values that consumers of committed data see."""
    with kafka.connect() as connection:
        body = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "isolation_level": 1,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
                    ],
                }
            ],
        }
        found = connection.request("Fetch", body, 11).responses[0].partitions[0]
    assert found.error_code == 0
    aborted = [(gone.producer_id, gone.first_offset) for gone in found.aborted_transactions or []]
    reader = RecordReader(found.records or b"", aborted=aborted)
    return [None if record.value is None else bytes(record.value) for record in reader]


def ends(kafka: AnyKafka, topic: str, partition: int = 0) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    found = []
    with kafka.connect() as connection:
        for isolation in (1, 0):
            item = {"partition_index": partition, "timestamp": -1}
            body = {
                "replica_id": -1,
                "isolation_level": isolation,
                "topics": [{"name": topic, "partitions": [item]}],
            }
            answer = connection.request("ListOffsets", body, 5)
            found.append(answer.topics[0].partitions[0].offset)
    return found[0], found[1]


def settled(kafka: AnyKafka, topic: str, partition: int = 0) -> list[bytes | None]:
    """The same when all transactions have ended: brokers answer before the markers are written."""
    deadline = time.monotonic() + PATIENCE
    while True:
        stable, high = ends(kafka, topic, partition)
        if stable == high:
            return committed(kafka, topic, partition)
        assert time.monotonic() < deadline, (stable, high)
        time.sleep(0.01)
