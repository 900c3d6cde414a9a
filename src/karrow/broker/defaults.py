"""What is set for brokers: the defaults of topics, and facts about the broker itself.

Rules:
- A value set for one broker goes before one set for all, that before what the broker was started
  with, and that before Kafka's default. DescribeConfigs lists them in this order.
- What is set for all brokers and concerns topics acts at once on every topic that has no value of
  its own. What is set for a single broker acts if there is no other, else it is kept and told.
- Everything else cannot be changed while the broker runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from karrow import errors
from karrow.broker.settings import (
    BOOLEAN,
    BROKER_NAMES,
    INT,
    OTHER_UNITS,
    Setting,
    Settings,
    problem_with,
    topic_table,
)

if TYPE_CHECKING:
    from karrow.broker.cluster import Cluster

TABLE = "broker_settings"
ALL = ""
# Where a value comes from, as DescribeConfigs numbers it.
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS, OF_START, OF_KAFKA = 1, 2, 3, 4, 5


class Source(NamedTuple):
    """One of the values that a setting has at some level."""

    name: str
    value: str
    level: int


class Defaults:
    """The settings of all brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.topic_table = topic_table(cluster.release.name)
        self._topic_names = {
            broker: name for name, broker in BROKER_NAMES.items() if name in self.topic_table
        }
        first: dict[str, dict[str, str]] = {ALL: {}}
        if "eligible.leader.replicas.version" in cluster.release.finalized:
            # What a cluster is formatted with since it has this feature (KIP-966).
            first[ALL]["min.insync.replicas"] = "1"
        self._given: dict[str, dict[str, str]] = first | cluster.store.load(TABLE)

    # Topics.

    def for_topic(self, given: Mapping[str, str] = {}) -> Settings:
        """A topic's settings, over what is set for all."""
        return Settings(self.topic_table, given, self._inherited())

    def _inherited(self) -> dict[str, str]:
        given = dict(self.given(ALL))
        if len(self._cluster.nodes) == 1:
            given |= self.given(str(*self._cluster.nodes))
        names = self._topic_names
        return {names[name]: text for name, text in given.items() if name in names}

    # Brokers. They are named by their ids; ALL means all of them.

    def given(self, broker: str) -> dict[str, str]:
        """What was set for a broker, or for all."""
        return self._given.get(broker, {})

    def setting(self, name: str) -> Setting | None:
        """The facts about a name, None if it is not known here."""
        topic = self._topic_names.get(name)
        if topic is not None:
            return self.topic_table[topic]
        return next((setting for known, setting, _ in self._facts(ALL) if known == name), None)

    def is_fixed(self, name: str) -> bool:
        """Whether the setting cannot be changed while the broker runs."""
        return name not in self._topic_names

    def names(self) -> list[str]:
        """Everything that is told of a broker."""
        return sorted([*self._topic_names, *(name for name, _, _ in self._facts(ALL))])

    def sources(self, name: str, broker: str) -> list[Source]:
        """The values that a broker's setting has, the one that counts first."""
        found = [
            Source(name, self._given[level_name][name], level)
            for level_name, level in ((broker, OF_BROKER), (ALL, OF_ALL_BROKERS))
            if name in self._given.get(level_name, {}) and (level_name or level == OF_ALL_BROKERS)
        ]
        topic = self._topic_names.get(name)
        if topic in OTHER_UNITS:
            # Kafka leaves the other unit out where it is the only one.
            found += [Source(*OTHER_UNITS[topic], OF_KAFKA)] if found else []
        elif topic is not None:
            found.append(Source(name, self.topic_table[topic].default, OF_KAFKA))
        for known, setting, value in self._facts(broker):
            if known == name:
                if value != setting.default:
                    found.append(Source(name, value, OF_START))
                if setting.default:
                    found.append(Source(name, setting.default, OF_KAFKA))
        return found

    def topic_sources(self, name: str, broker: str) -> list[Source]:
        """The values that a topic's setting has without the topic's own."""
        known = BROKER_NAMES.get(name)
        return [] if known is None else self.sources(known, broker)

    def check(self, changes: Mapping[str, str]) -> None:
        """Refuse what cannot be set for a broker."""
        fixed = [name for name in changes if self.setting(name) and self.is_fixed(name)]
        if fixed:
            raise errors.InvalidRequest(
                f"Cannot update these configs dynamically: {', '.join(fixed)}"
            )
        for name, value in changes.items():
            setting = self.setting(name)
            problem = problem_with(setting, value.strip()) if setting else None
            if problem:
                raise errors.InvalidRequest(
                    f"Invalid value {value} for configuration {name}: {problem}"
                )

    def change(self, broker: str, given: Mapping[str, str]) -> None:
        """Set everything that is set for a broker, or for all."""
        self._given[broker] = dict(given)
        self._cluster.store.put(TABLE, broker, self._given[broker])
        for topic in self._cluster.topics.values():
            topic.configure(self.for_topic(topic.settings.given))

    def _facts(self, broker: str) -> list[tuple[str, Setting, str]]:
        """What the broker was started with, or cannot do otherwise."""
        cluster = self._cluster
        node_id: list[tuple[str, Setting, str]] = []
        if cluster.release.forwards:
            # It has no default any more since there is nothing but a quorum.
            default = "-1" if cluster.release.converts else ""
            node_id = [("node.id", Setting(INT, default), broker)]
        return [
            *node_id,
            (
                "auto.create.topics.enable",
                Setting(BOOLEAN, "true"),
                _text(cluster.auto_create_topics),
            ),
            ("broker.id", Setting(INT, "-1"), broker),
            ("default.replication.factor", Setting(INT, "1"), "1"),
            ("delete.topic.enable", Setting(BOOLEAN, "true"), "true"),
            ("group.initial.rebalance.delay.ms", Setting(INT, "3000"), "0"),
            ("log.retention.hours", Setting(INT, "168"), "168"),
            ("num.partitions", Setting(INT, "1"), str(cluster.default_partitions)),
            ("offset.metadata.max.bytes", Setting(INT, "4096"), "4096"),
            ("offsets.retention.minutes", Setting(INT, "10080"), "10080"),
            ("transaction.max.timeout.ms", Setting(INT, "900000"), "900000"),
            ("transactional.id.expiration.ms", Setting(INT, "604800000"), "604800000"),
        ]


def _text(value: bool) -> str:
    return "true" if value else "false"
