"""A broker's server.properties, by release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.brokers import users
from tests.brokers.artifacts import Release
from tests.brokers.certificates import Certificates, Identity

HOST = "127.0.0.1"

# Listeners by name, with their security protocol. The first four are what every client meets; the
# others are SSL with a certificate nobody should accept, or one that wants the client's own.
SECURE = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "WRONG_NAME": "SSL",
}
OLD = {"PLAINTEXT": "PLAINTEXT", "SASL_PLAINTEXT": "SASL_PLAINTEXT"}
CONTROLLER = "CONTROLLER"

BROKER_SESSION = 2.0
# Of members whose partitions the broker divides: they learn of changes with their heartbeats.
HEARTBEAT_INTERVAL = 0.3
ZOOKEEPER_SESSION = 4.0
SUPER_USERS = "User:ANONYMOUS;User:admin"


@dataclass(frozen=True)
class Place:
    """One broker: its number and where everything of it is. ``ports`` go by listener."""

    node_id: int
    ports: Mapping[str, int]
    folder: Path
    peers: Mapping[int, int] = field(default_factory=dict)
    """Every node's controller port."""
    zookeeper: str | None = None


def listeners(release: Release) -> dict[str, str]:
    """The listeners a release gets, with their protocols."""
    return OLD if release.zookeeper else SECURE


def broker_properties(
    release: Release, place: Place, certificates: Certificates, extra: Mapping[str, str]
) -> dict[str, str]:
    """Everything; old brokers ignore what they do not know."""
    found = _common(max(len(place.peers), 1))
    found |= {"log.dirs": str(place.folder / "data")}
    if release.zookeeper:
        found |= _zookeeper(release, place)
    else:
        found |= _kraft(place)
    found |= _listeners(release, place)
    found |= _sasl(release)
    if "SSL" in listeners(release):
        found |= _tls(certificates)
    return found | dict(extra)


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write them as Java reads them."""
    lines = [f"{name}={value}\n" for name, value in sorted(properties.items())]
    path.write_text("".join(lines), "utf-8")


def _common(nodes: int) -> dict[str, str]:
    replicas, in_sync = str(nodes), str(min(nodes, 2))
    return {
        "auto.create.topics.enable": "true",
        "delete.topic.enable": "true",
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": str(int(HEARTBEAT_INTERVAL * 1000)),
        "group.share.min.session.timeout.ms": "1000",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.min.record.lock.duration.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.initial.task.delay.ms": "500",
        "log.cleaner.dedupe.buffer.size": "4194304",
        "num.network.threads": "1",
        "num.io.threads": "4",
        "background.threads": "2",
        "num.recovery.threads.per.data.dir": "1",
        "socket.request.max.bytes": "104857600",
        "replica.socket.timeout.ms": "3000",
        "controller.socket.timeout.ms": "3000",
        "delegation.token.secret.key": "token-secret",
        "delegation.token.master.key": "token-secret",
        "super.users": SUPER_USERS,
        "allow.everyone.if.no.acl.found": "true",
    }


def _kraft(place: Place) -> dict[str, str]:
    voters = ",".join(f"{node}@{HOST}:{port}" for node, port in place.peers.items())
    return {
        "process.roles": "broker,controller",
        "node.id": str(place.node_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": CONTROLLER,
        # How soon a killed broker's partitions get new leaders.
        "broker.session.timeout.ms": str(int(BROKER_SESSION * 1000)),
        "broker.heartbeat.interval.ms": "250",
        "controller.quorum.election.timeout.ms": "500",
        "controller.quorum.election.backoff.max.ms": "250",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }


def _zookeeper(release: Release, place: Place) -> dict[str, str]:
    modern = release.number >= (2, 4)
    package = "kafka.security.authorizer.Acl" if modern else "kafka.security.auth.SimpleAcl"
    return {
        "broker.id": str(place.node_id),
        "zookeeper.connect": str(place.zookeeper),
        "zookeeper.session.timeout.ms": str(int(ZOOKEEPER_SESSION * 1000)),
        "zookeeper.connection.timeout.ms": "30000",
        "authorizer.class.name": f"{package}Authorizer",
    }


def _listeners(release: Release, place: Place) -> dict[str, str]:
    protocols = listeners(release)
    public = [f"{name}://{HOST}:{place.ports[name]}" for name in protocols]
    bound, security = list(public), dict(protocols)
    if not release.zookeeper:
        bound.append(f"{CONTROLLER}://{HOST}:{place.ports[CONTROLLER]}")
        security[CONTROLLER] = "PLAINTEXT"
    found = {
        "listeners": ",".join(bound),
        "advertised.listeners": ",".join(public),
        "inter.broker.listener.name": "PLAINTEXT",
    }
    pairs = ",".join(f"{name}:{protocol}" for name, protocol in security.items())
    return found | {"listener.security.protocol.map": pairs}


def _sasl(release: Release) -> dict[str, str]:
    # Old releases read their users from a JAAS file, see cluster.py.
    if release.zookeeper:
        return {"sasl.enabled.mechanisms": "PLAIN"}
    found = {"sasl.enabled.mechanisms": ",".join(users.MECHANISMS)}
    for listener in ("sasl_plaintext", "sasl_ssl"):
        for mechanism, module in users.login_modules().items():
            prefix = f"listener.name.{listener}.{mechanism.lower()}"
            found[f"{prefix}.sasl.jaas.config"] = module
    return found


def _tls(certificates: Certificates) -> dict[str, str]:
    found = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        # A client may show a certificate, and is then known by its name.
        "ssl.client.auth": "requested",
        **_identity("", certificates.server),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    found |= _identity("listener.name.expired.", certificates.expired)
    return found | _identity("listener.name.wrong_name.", certificates.wrong_name)


def _identity(prefix: str, identity: Identity) -> dict[str, str]:
    return {
        f"{prefix}ssl.keystore.type": "PEM",
        f"{prefix}ssl.keystore.location": str(identity.combined),
    }
