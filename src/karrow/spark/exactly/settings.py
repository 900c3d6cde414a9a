"""What a program has said about its sink: read where it is given, and again in every task.

Rules:
- What is wrong is refused by name when the sink is made, before anything moves.
- Tasks get what was given and read it for themselves: a provider of tokens belongs to its process.
- Kafka's own names are understood as well, behind ``kafka.`` as in Spark's options, and without
  their case. An option that has a value by both its names, karrow's and Kafka's, is refused.
- Servers are addresses from the start: a function that gives them is called where the sink is made.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from karrow.config import ClientConfig, ProducerConfig
from karrow.config.bootstrap import resolve
from karrow.config.dialects import properties
from karrow.errors import ConfigError
from karrow.records._hash import PARTITIONERS
from karrow.spark import options as spark_options
from karrow.spark.exactly.transaction import PREFIX, client_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karrow.config.bootstrap import Servers

# Brokers allow no more unless told; a batch has to be written within that.
TRANSACTION_TIMEOUT = 900.0
SINK_ID = re.compile(r"[a-zA-Z0-9._-]{1,200}")


class Settings:
    """The options of one sink."""

    def __init__(self, bootstrap: Servers | None, sink_id: str, options: Mapping[str, Any]) -> None:
        self._bootstrap = None if bootstrap is None else resolve(bootstrap)
        self._options = _without_case(options)
        self._config: ProducerConfig | None = None
        self.sink_id = _checked_id(sink_id)
        _check_travels(self._options)
        _check(self.config)

    @property
    def config(self) -> ProducerConfig:
        """As the producer's options, with the sink's transactional id."""
        if self._config is None:
            self._config = self._read()
        return self._config

    @property
    def client(self) -> ClientConfig:
        """The part of them that every client has."""
        return client_config(self.config)

    @property
    def of_producer(self) -> dict[str, Any]:
        """The part of them that only producers have."""
        config, shared = self.config, ClientConfig.describe()
        return {n: getattr(config, n) for n in ProducerConfig.describe() if n not in shared}

    def _read(self) -> ProducerConfig:
        own = {name: value for name, value in self._options.items() if not _is_kafkas(name)}
        given = {name: str(value) for name, value in self._options.items() if _is_kafkas(name)}
        if "transactional_id" in own or "kafka.transactional.id" in given:
            raise ConfigError("the sink_id is what names the transactions; leave out the id")
        named: dict[str, Any] = {"transactional_id": PREFIX + self.sink_id}
        if "transaction_timeout" not in own and "kafka.transaction.timeout.ms" not in given:
            named["transaction_timeout"] = TRANSACTION_TIMEOUT
        if not given:
            return ProducerConfig.for_servers(self._bootstrap, None, {**own, **named})
        return self._among_kafkas(given).replace(**_agreed(given, own), **named)

    def _among_kafkas(self, given: Mapping[str, str]) -> ProducerConfig:
        """What Kafka's own names say, with the servers, which may stand among them."""
        servers = spark_options.SERVERS
        if self._bootstrap is None:
            return spark_options.connection(given, ProducerConfig)
        if servers in given and resolve(given[servers]) != self._bootstrap:
            raise ConfigError(
                f"bootstrap and {servers} contradict each other", hint="leave out one of them"
            )
        listed = ",".join(map(str, self._bootstrap))
        return spark_options.connection({**given, servers: listed}, ProducerConfig)

    def __reduce__(self) -> tuple[Callable[..., Settings], tuple[Any, ...]]:
        return Settings, (self._bootstrap, self.sink_id, self._options)

    def __repr__(self) -> str:
        return f"<Settings of sink {self.sink_id!r}>"


def _is_kafkas(name: str) -> bool:
    lower = name.lower()
    return lower.startswith(spark_options.KAFKA) or lower in spark_options.CONNECTION_KEYS


def _without_case(options: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        key = name.lower() if _is_kafkas(name) else name
        if found.setdefault(key, value) != value:
            raise ConfigError(f"{key} stands there twice", hint="leave out one of them")
    return found


def _agreed(given: Mapping[str, str], own: dict[str, Any]) -> dict[str, Any]:
    """Karrow's own options, if none of Kafka's is about the same."""
    for theirs, value in given.items():
        for name in _set_by(theirs, value):
            if name in own:
                raise ConfigError(
                    f"{name} and {theirs} are about the same", hint="leave out one of them"
                )
    return own


def _set_by(name: str, value: str) -> tuple[str, ...]:
    """The options that one of Kafka's names sets; that there is TLS leaves open which."""
    if name == "credentials":
        return ("sasl", "tls")
    if name == "kafka.security.protocol" and value.strip().upper().endswith("SSL"):
        return ()
    known = properties("java", ProducerConfig).get(name.removeprefix(spark_options.KAFKA))
    return () if known is None or known.option is None else (known.option,)


def _checked_id(sink_id: object) -> str:
    if not isinstance(sink_id, str) or SINK_ID.fullmatch(sink_id) is None:
        raise ConfigError(
            f"sink_id={sink_id!r} is no name for a sink",
            hint="1 to 200 of the characters a-z, A-Z, 0-9, '.', '_' and '-', the same after every "
            "restart, and of no other query",
        )
    return sink_id


def _check_travels(options: Mapping[str, Any]) -> None:
    """Tasks get the options pickled, and secrets do not pickle."""
    for name, value in options.items():
        try:
            cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - whatever it is made of
            raise ConfigError(
                f"{name} cannot be sent to the tasks",
                hint="give credentials='environment' or credentials='module:function', which each "
                "process asks for itself, or Kafka's own names behind 'kafka.'",
            ) from None


def _check(config: ProducerConfig) -> None:
    if config.acks != "all" or not config.idempotent:
        raise ConfigError(
            "exactly once takes acks='all' and idempotent=True", hint="leave them out"
        )
    if config.partitioner not in PARTITIONERS:
        raise ConfigError(
            f"partitioner={config.partitioner!r} is none of {', '.join(map(repr, PARTITIONERS))}",
            hint="any other rule makes a column 'partition'",
        )
