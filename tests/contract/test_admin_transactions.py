"""Admin on any broker: transactions and the producers that hold them."""

from __future__ import annotations

import dataclasses
import time
from typing import NamedTuple

import pytest

import karrow
from karrow import errors
from karrow.records import BatchBuilder
from karrow.types import Node
from tests.fix_admin import eventually, new_name
from tests.fix_any import AnyKafka

# The last version that names topics; the partition joins the transaction with it (KIP-890).
PRODUCE = 12


class Open(NamedTuple):
    """A transaction with one record in it."""

    transactional_id: str
    topic: str
    producer_id: int
    epoch: int


def begin(admin: karrow.Admin, topic: str) -> Open:
    transactional_id = new_name("tx")
    to = Node.transaction_coordinator(transactional_id)
    body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    # The second time the epoch is 1, so that there is an older one; until the coordinator has
    # loaded there is none.
    while (identity := admin.client.request("InitProducerId", body, to=to)).producer_epoch < 1:
        time.sleep(0.02)
    batch = BatchBuilder()
    batch.append(None, b"x")
    data = batch.build(
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    produce = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": data}]}],
    }

    def is_written() -> bool:
        # The coordinator may still be busy with the end of what was before.
        answer = admin.client.request(
            "Produce", produce, to=Node.leader(topic, 0), api_version=PRODUCE
        )
        return bool(answer.responses[0].partition_responses[0].error_code == 0)

    eventually(is_written)
    return Open(transactional_id, topic, identity.producer_id, identity.producer_epoch)


def end(admin: karrow.Admin, transaction: Open) -> None:
    body = {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "committed": False,
    }
    to = Node.transaction_coordinator(transaction.transactional_id)
    assert admin.client.request("EndTxn", body, to=to).error_code == 0


@pytest.mark.since("4.0")
def test_transactions_are_listed_and_described(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    one, other = begin(admin, topic), begin(admin, topic)
    found = {listed.transactional_id: listed for listed in admin.list_transactions()}
    assert found[one.transactional_id].producer_id == one.producer_id
    assert found[one.transactional_id].state == "Ongoing"
    chosen = admin.list_transactions(
        states=["Ongoing"], producer_ids=[one.producer_id], min_age=0.0, pattern="tx-.*"
    )
    assert [listed.transactional_id for listed in chosen] == [one.transactional_id]
    assert admin.list_transactions(producer_ids=[one.producer_id], min_age=3600) == []
    described = admin.describe_transaction(one.transactional_id)
    assert (described.state, described.partitions) == ("Ongoing", ((topic, 0),))
    assert (described.producer_id, described.timeout) == (one.producer_id, 60.0)
    assert described.start_timestamp_ms is not None
    many = admin.describe_transactions([one.transactional_id, other.transactional_id])
    assert many[one.transactional_id] == described
    for transaction in (one, other):
        end(admin, transaction)


@pytest.mark.since("3.9")
def test_unknown_states_are_refused(admin: karrow.Admin) -> None:
    with pytest.raises(errors.ConfigError, match="'Forgotten'"):
        admin.list_transactions(states=["Forgotten"])


@pytest.mark.since("4.0")
def test_absent_transactions_are_not_described(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    known, absent = begin(admin, any_kafka.create_topic()), new_name("absent")
    with pytest.raises(errors.TransactionalIdNotFound, match=absent):
        admin.describe_transaction(absent)
    with pytest.raises(errors.PartialError) as caught:
        admin.describe_transactions([known.transactional_id, absent])
    assert list(caught.value.results) == [known.transactional_id]
    end(admin, known)


@pytest.mark.since("4.0")
def test_producers_are_described_and_their_transaction_aborted(
    admin: karrow.Admin, any_kafka: AnyKafka
) -> None:
    topic = any_kafka.create_topic(partitions=2)
    transaction = begin(admin, topic)
    found = admin.describe_producers([(topic, 0), (topic, 1)])
    assert found[topic, 1] == ()
    (producer,) = found[topic, 0]
    assert producer.producer_id == transaction.producer_id
    assert producer.transaction_start_offset == 0
    assert admin.client.latest_offset(topic, 0, isolation="read_committed") == 0
    admin.abort_transaction(topic, 0, producer)
    assert admin.client.latest_offset(topic, 0, isolation="read_committed") == 2
    (after,) = admin.describe_producers([(topic, 0)])[topic, 0]
    assert after.transaction_start_offset is None
    with pytest.raises(errors.ConfigError, match="has no transaction"):
        admin.abort_transaction(topic, 0, after)


@pytest.mark.since("4.0")
def test_transaction_of_an_older_producer_is_not_aborted(
    admin: karrow.Admin, any_kafka: AnyKafka
) -> None:
    topic = any_kafka.create_topic()
    transaction = begin(admin, topic)
    (producer,) = admin.describe_producers([(topic, 0)])[topic, 0]
    older = dataclasses.replace(producer, producer_epoch=producer.producer_epoch - 1)
    with pytest.raises(errors.InvalidProducerEpoch, match=topic):
        admin.abort_transaction(topic, 0, older)
    end(admin, transaction)


def test_producers_of_absent_partitions_are_not_described(
    admin: karrow.Admin, any_kafka: AnyKafka
) -> None:
    topic = any_kafka.create_topic()
    with pytest.raises(errors.PartialError) as caught:
        admin.describe_producers([(topic, 0), (topic, 1)])
    assert list(caught.value.errors) == [(topic, 1)]
