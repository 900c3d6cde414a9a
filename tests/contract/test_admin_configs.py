"""Admin on any broker: configurations."""

from __future__ import annotations

import pytest

import karrow
from karrow import errors
from karrow.types import ConfigChange, ConfigResource, ConfigSource
from tests.fix_admin import eventually, new_name
from tests.fix_any import AnyKafka

POLICY, RETENTION = "cleanup.policy", "retention.ms"


def value(admin: karrow.Admin, owner: ConfigResource, name: str) -> str | None:
    return admin.describe_config(owner, [name])[name].value


def test_config_tells_value_and_origin(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic(config={RETENTION: "1000"})
    found = admin.describe_config(ConfigResource.topic(topic), synonyms=True, documentation=True)
    assert (found[RETENTION].value, found[RETENTION].is_default) == ("1000", False)
    assert found[RETENTION].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found["segment.bytes"].synonyms[-1].name == "log.segment.bytes"
    if not any_kafka.is_embedded:  # which tells no documentation
        assert "retention" in (found[RETENTION].documentation or "")
    assert found[POLICY].is_default


@pytest.mark.since("3.9")
def test_configs_of_brokers_come_from_themselves(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic, broker = ConfigResource.topic(any_kafka.create_topic()), ConfigResource.broker(1)
    found = admin.describe_configs([topic, broker, ConfigResource.broker()])
    assert found[broker]["node.id"].value == "1"
    assert found[broker]["node.id"].read_only
    if not any_kafka.is_embedded:  # which has no secrets
        secret = found[broker]["delegation.token.secret.key"]
        assert (secret.sensitive, secret.value) == (True, None)
    assert POLICY in found[topic]
    assert admin.describe_configs([topic], [POLICY])[topic].keys() == {POLICY}


def test_configs_of_nothing_fail(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic, absent = any_kafka.create_topic(), new_name("absent")
    with pytest.raises(errors.UnknownTopicOrPartition, match=absent):
        admin.describe_config(ConfigResource.topic(absent))
    with pytest.raises(errors.PartialError) as caught:
        admin.describe_configs(map(ConfigResource.topic, [topic, absent]))
    assert list(caught.value.errors) == [ConfigResource.topic(absent)]
    with pytest.raises(errors.ConfigError, match="'first' is no broker's id"):
        admin.describe_config(ConfigResource(karrow.ConfigType.BROKER, "first"))


def test_one_entry_is_changed_and_the_rest_stays(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    owner = ConfigResource.topic(any_kafka.create_topic(config={"segment.bytes": "2000000"}))
    admin.alter_config(owner, {RETENTION: "5000", POLICY: ConfigChange.append("compact")})
    eventually(lambda: value(admin, owner, RETENTION) == "5000")
    assert value(admin, owner, POLICY) == "delete,compact"
    assert value(admin, owner, "segment.bytes") == "2000000"
    admin.alter_config(owner, {RETENTION: None, POLICY: ConfigChange.subtract("delete")})
    eventually(lambda: value(admin, owner, POLICY) == "compact")
    assert admin.describe_config(owner)[RETENTION].is_default


def test_many_configs_are_changed(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topics = [ConfigResource.topic(any_kafka.create_topic()) for _ in range(2)]
    broker, interval = ConfigResource.broker(1), "log.index.interval.bytes"
    admin.alter_configs({owner: {RETENTION: "7000"} for owner in topics})
    admin.alter_configs({broker: {interval: "5000"}, topics[0]: {RETENTION: "8000"}})
    eventually(lambda: value(admin, broker, interval) == "5000")
    eventually(lambda: value(admin, topics[0], RETENTION) == "8000")
    assert value(admin, topics[1], RETENTION) == "7000"
    admin.alter_configs({broker: {interval: None}})
    eventually(lambda: value(admin, broker, interval) == "4096")


def test_secret_value_is_taken_and_not_shown(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    owner = ConfigResource.topic(any_kafka.create_topic())
    admin.alter_config(owner, {RETENTION: karrow.Secret("4711")})
    eventually(lambda: value(admin, owner, RETENTION) == "4711")
    assert "4711" not in repr(ConfigChange.of("4711"))


@pytest.mark.since("3.9")
def test_bad_configs_are_refused(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    good, bad = (ConfigResource.topic(any_kafka.create_topic()) for _ in range(2))
    with pytest.raises(errors.InvalidConfig, match=bad.name):
        admin.alter_config(bad, {RETENTION: "soon"}, validate_only=True)
    with pytest.raises(errors.PartialError) as caught:
        admin.alter_configs({good: {RETENTION: "6000"}, bad: {RETENTION: "soon"}})
    assert list(caught.value.results) == [good]
    eventually(lambda: value(admin, good, RETENTION) == "6000")


def test_config_is_changed_on_every_release(every_kafka: AnyKafka) -> None:
    if every_kafka.number < (0, 11):
        pytest.skip("0.10 has no API for configurations")
    topic = every_kafka.create_topic(config={"segment.bytes": "2000000"})
    owner = ConfigResource.topic(topic)
    with karrow.Admin(every_kafka.bootstrap, api_timeout=20.0) as admin:
        admin.alter_config(owner, {RETENTION: "5000", POLICY: ConfigChange.append("compact")})
        eventually(lambda: value(admin, owner, RETENTION) == "5000")
        assert value(admin, owner, POLICY) == "delete,compact"
        admin.alter_config(owner, {RETENTION: None})
        eventually(lambda: admin.describe_config(owner)[RETENTION].is_default)
        assert value(admin, owner, "segment.bytes") == "2000000"
        absent = ConfigResource.topic(new_name("absent"))
        with pytest.raises(errors.PartialError) as caught:
            admin.alter_configs({absent: {RETENTION: "1"}, owner: {RETENTION: "6000"}}, retries=0)
        assert (list(caught.value.results), list(caught.value.errors)) == ([owner], [absent])
