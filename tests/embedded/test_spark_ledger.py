"""The ledger in a topic: which topics it takes, and how long it waits for what is about to come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import karrow
from karrow.errors import ConfigError, RequestTimeout
from karrow.spark.exactly.ledger import TOPIC_CONFIG, Entry, TopicLedger
from karrow.sync.loop import run


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(seed=1, auto_create_topics=False) as broker:
        yield broker


@pytest.fixture
def client(broker: karrow.Broker) -> Iterator[karrow.Client]:
    with karrow.Client(broker.bootstrap, api_timeout=2) as client:
        yield client


def prepare(client: karrow.Client, topic: str | None = "notes") -> None:
    run(TopicLedger("s", topic).prepare(client.twin), "TopicLedger")


def read(client: karrow.Client) -> Entry | None:
    return run(TopicLedger("s", "notes").read(client.twin), "TopicLedger")


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_forgets_is_no_ledger(client: karrow.Client, policy: str) -> None:
    client.create_topic("notes", 1, config={"cleanup.policy": policy})
    told = rf"ledger topic notes has cleanup\.policy={policy}, so that its entry expires"
    with pytest.raises(ConfigError, match=told):
        prepare(client)


def test_a_topic_without_a_policy_of_its_own_has_the_brokers(client: karrow.Client) -> None:
    client.create_topic("notes", 1)
    with pytest.raises(ConfigError, match=r"cleanup\.policy=delete"):
        prepare(client)


def test_compacted_topics_and_those_of_its_own_are_taken(client: karrow.Client) -> None:
    client.create_topic("notes", 1, config=TOPIC_CONFIG)
    prepare(client)
    prepare(client, None)  # is made
    prepare(client, None)  # is found


@pytest.mark.parametrize("error", ["TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_SERVER_ERROR"])
def test_a_topic_whose_policy_nobody_tells_is_taken(
    broker: karrow.Broker, client: karrow.Client, error: str
) -> None:
    client.create_topic("notes", 1)
    broker.fail("DescribeConfigs", error)
    prepare(client)


def test_a_topic_with_more_partitions_is_no_ledger(client: karrow.Client) -> None:
    client.create_topic("notes", 2, config=TOPIC_CONFIG)
    with pytest.raises(ConfigError, match="has 2 partitions; it has to have one"):
        prepare(client)


def test_a_transaction_that_stays_open_is_not_waited_for_without_end(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    client.create_topic("notes", 1, config=TOPIC_CONFIG)
    with karrow.Producer(broker.bootstrap, transactional_id="other") as producer:
        with (
            producer.transaction(),
            karrow.Client(broker.bootstrap, api_timeout=0.3) as hasty,
        ):
            producer.send("notes", b"x", key=b"other").result()
            with pytest.raises(RequestTimeout, match="stays open in the ledger topic notes"):
                read(hasty)
        assert read(client) is None
