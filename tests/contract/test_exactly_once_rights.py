"""What an exactly-once sink may not do is said before it writes, on real brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import karrow
from karrow import errors
from karrow.aio.producing.coordinator_calls import Identity
from karrow.spark.exactly.batches import Batches
from karrow.spark.exactly.ledger import PREFIX, new_ledger
from karrow.spark.exactly.settings import Settings
from karrow.spark.exactly.transaction import PREFIX as IDS
from karrow.spark.exactly.transaction import BlockingTransaction
from karrow.types import AclBinding, AclOperation, ResourceType
from tests.brokers import KafkaCluster
from tests.brokers.users import LOGIN, PASSWORDS
from tests.contract.transactional import new_id
from tests.fix_admin import eventually

BOTH = pytest.mark.parametrize("kafka_version", ["4.3.1", "3.9.2"], indirect=True)
pytestmark = [BOTH, pytest.mark.slow]


class Sink:
    """Alice's."""

    def __init__(self, kafka: KafkaCluster, ledger: str = "group") -> None:
        self._servers = kafka.bootstrap()
        self.topic, self.sink_id = kafka.create_topic(), new_id("sink")
        login = f'username="alice" password="{PASSWORDS["alice"]}"'
        options = {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required {login};",
        }
        settings = Settings(kafka.bootstrap("SASL_PLAINTEXT"), self.sink_id, options)
        self.transaction = BlockingTransaction(
            settings.config, new_ledger(ledger, self.sink_id, self.topic, None)
        )
        self.attempts = 0

    def reserve(self, kind: ResourceType, name: str, operation: AclOperation, who: str) -> None:
        """Where somebody may do something, all others may not."""
        rule = AclBinding(kind, name, f"User:{who}", operation)
        with karrow.Admin(self._servers) as admin:
            admin.create_acls([rule])
            eventually(lambda: admin.describe_acls(rule) == [rule])

    def run(self) -> None:
        def write(who: Identity, version: int) -> int:
            self.attempts += 1
            self.transaction.partitions([self.topic])
            return 0

        batches = Batches(self.transaction, sink_id=self.sink_id, retries=3)
        batches.run("query", "run", 0, write)


def test_who_has_all_rights_may_begin(kafka_version: KafkaCluster) -> None:
    sink = Sink(kafka_version)
    sink.run()
    assert sink.attempts == 1


def refused(sink: Sink, error: type[errors.KarrowError], match: str) -> Callable[[], bool]:
    """Brokers hear of rules one after the other; a sink is not refused before they have."""

    def look() -> bool:
        sink.transaction._allowed.clear()
        try:
            sink.transaction.open()
            sink.transaction.partitions([sink.topic])
        except error as told:
            return match in str(told)
        return False

    return look


def test_a_topic_that_may_not_be_written_is_named_before_a_row_is(
    kafka_version: KafkaCluster,
) -> None:
    sink = Sink(kafka_version)
    sink.reserve(ResourceType.TOPIC, sink.topic, AclOperation.READ, "alice")
    match = f"the sink may not Write there (topic {sink.topic}); it needs Write"
    eventually(refused(sink, errors.TopicAuthorizationFailed, match))
    with pytest.raises(errors.TopicAuthorizationFailed):
        sink.run()
    assert sink.attempts == 1, "it was tried again"


def test_a_group_that_may_not_be_used_is_named_before_a_row_is_written(
    kafka_version: KafkaCluster,
) -> None:
    sink = Sink(kafka_version)
    group = PREFIX + sink.sink_id
    sink.reserve(ResourceType.GROUP, group, AclOperation.DESCRIBE, "alice")
    match = f"the sink may not keep its ledger there (group {group}); it needs Read"
    eventually(refused(sink, errors.GroupAuthorizationFailed, match))
    with pytest.raises(errors.GroupAuthorizationFailed):
        sink.run()
    assert sink.attempts == 0


def test_a_ledger_topic_that_may_not_be_written_is_named(kafka_version: KafkaCluster) -> None:
    sink = Sink(kafka_version, ledger="topic")
    sink.run()
    name = PREFIX + sink.sink_id
    sink.reserve(ResourceType.TOPIC, name, AclOperation.READ, "alice")
    match = f"the sink may not Write there (topic {name}); it needs Write"
    eventually(refused(sink, errors.TopicAuthorizationFailed, match))


def test_a_transactional_id_of_others_is_refused_when_the_sink_is_opened(
    kafka_version: KafkaCluster,
) -> None:
    sink = Sink(kafka_version)
    sink.reserve(ResourceType.TRANSACTIONAL_ID, IDS + sink.sink_id, AclOperation.WRITE, "bob")
    eventually(refused(sink, errors.TransactionalIdAuthorizationFailed, ""))
    with pytest.raises(errors.TransactionalIdAuthorizationFailed):
        sink.run()
    assert sink.attempts == 0
