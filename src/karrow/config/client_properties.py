"""What each client-level property of librdkafka and of Kafka's Java client becomes here.

Those that are one option stand with that option, in its metadata; here are the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karrow.config.dialects import Dialect, Meanings

__all__ = [
    "FOREVER",
    "HANDLERS",
    "IGNORED",
    "MEANINGS",
    "NO_CLASSES",
    "PROVIDER",
    "REFUSED",
    "SUPPORTED",
]

FOREVER = 1e9  # seconds
# Classes of Java's that log in; those of AWS are understood, all others are refused.
HANDLERS = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class")

# Second names of options, and what makes tls and sasl, which is read together.
SUPPORTED: dict[Dialect, dict[str, str]] = {
    "librdkafka": {
        "metadata.broker.list": "bootstrap",
        "max.in.flight": "max_in_flight",
        "security.protocol": "tls",
        "ssl.ca.location": "tls",
        "ssl.ca.pem": "tls",
        "ssl.certificate.location": "tls",
        "ssl.certificate.pem": "tls",
        "ssl.key.location": "tls",
        "ssl.key.pem": "tls",
        "ssl.key.password": "tls",
        "enable.ssl.certificate.verification": "tls",
        "ssl.endpoint.identification.algorithm": "tls",
        "sasl.mechanism": "sasl",
        "sasl.mechanisms": "sasl",
        "sasl.username": "sasl",
        "sasl.password": "sasl",
    },
    "java": {
        "security.protocol": "tls",
        "ssl.truststore.type": "tls",
        "ssl.truststore.location": "tls",
        "ssl.truststore.certificates": "tls",
        "ssl.keystore.type": "tls",
        "ssl.keystore.location": "tls",
        "ssl.keystore.certificate.chain": "tls",
        "ssl.keystore.key": "tls",
        "ssl.key.password": "tls",
        "ssl.endpoint.identification.algorithm": "tls",
        "sasl.mechanism": "sasl",
        "sasl.jaas.config": "sasl",
        **dict.fromkeys(HANDLERS, "sasl"),
    },
}

_SWITCHED_OFF: Meanings = {0: FOREVER, -1: FOREVER}
_LEFT_TO_THE_SYSTEM: Meanings = {0: None, -1: None}

MEANINGS: dict[Dialect, dict[str, Meanings]] = {
    "librdkafka": {
        "connections.max.idle.ms": _SWITCHED_OFF,
        "topic.metadata.refresh.interval.ms": _SWITCHED_OFF,
        "metadata.recovery.rebootstrap.trigger.ms": _SWITCHED_OFF,
        "socket.send.buffer.bytes": _LEFT_TO_THE_SYSTEM,
        "socket.receive.buffer.bytes": _LEFT_TO_THE_SYSTEM,
    },
    "java": {
        "connections.max.idle.ms": _SWITCHED_OFF,
        "metadata.recovery.rebootstrap.trigger.ms": _SWITCHED_OFF,
        "send.buffer.bytes": _LEFT_TO_THE_SYSTEM,
        "receive.buffer.bytes": _LEFT_TO_THE_SYSTEM,
    },
}

_VERSIONS = "versions are always negotiated"
_LOGGING = "karrow logs through Python's logging and karrow.events"
_JAVA_MACHINERY = "it concerns Java's own machinery"
_STATISTICS = "statistics come from karrow.events"
_REAUTHENTICATION = "sessions are renewed when the broker says so (KIP-368)"
_SERVER_ONLY = "it is for brokers, which verify tokens"

IGNORED: dict[Dialect, dict[str, str]] = {
    "librdkafka": {
        "builtin.features": "everything is built in",
        "message.copy.max.bytes": "nothing is copied",
        "metadata.max.age.ms": "the age follows topic.metadata.refresh.interval.ms",
        "topic.metadata.refresh.fast.interval.ms": "waits follow retry.backoff.ms",
        "topic.metadata.refresh.fast.cnt": "waits follow retry.backoff.ms",
        "topic.metadata.refresh.sparse": "only the topics in use are asked for",
        "topic.metadata.propagation.max.ms": "a new topic is waited for as long as the call lasts",
        "debug": _LOGGING,
        "log_level": _LOGGING,
        "log.queue": _LOGGING,
        "log.thread.name": _LOGGING,
        "log.connection.close": _LOGGING,
        "socket.blocking.max.ms": "no socket blocks",
        "socket.nagle.disable": "it always is",
        "socket.max.fails": "a connection that fails is closed",
        "broker.address.ttl": "names are resolved at every attempt",
        "reconnect.backoff.jitter.ms": "jitter is always there",
        "statistics.interval.ms": _STATISTICS,
        "enabled_events": _STATISTICS,
        "enable.random.seed": "Python's generators are seeded",
        "internal.termination.signal": "no thread has to be killed",
        "api.version.request": _VERSIONS,
        "api.version.request.timeout.ms": _VERSIONS,
        "api.version.fallback.ms": _VERSIONS,
        "broker.version.fallback": _VERSIONS,
        "sasl.kerberos.service.name": "it belongs to GSSAPI",
        "sasl.kerberos.principal": "it belongs to GSSAPI",
        "sasl.kerberos.kinit.cmd": "it belongs to GSSAPI",
        "sasl.kerberos.keytab": "it belongs to GSSAPI",
        "sasl.kerberos.min.time.before.relogin": "it belongs to GSSAPI",
        "ssl.ca.certificate.stores": "it is for Windows",
        "client.dns.lookup": "all addresses of a name are tried",
        "client.software.name": "brokers are told karrow's own name",
        "client.software.version": "brokers are told karrow's own version",
        "enable.metrics.push": _STATISTICS,
    },
    "java": {
        "auto.include.jmx.reporter": _STATISTICS,
        "bootstrap.resolve.timeout.ms": "resolving counts into default.api.timeout.ms",
        "client.dns.lookup": "all addresses of a name are tried",
        "enable.metrics.push": _STATISTICS,
        "metadata.cluster.check.enable": "the cluster's id is always checked",
        "metric.reporters": _STATISTICS,
        "metrics.num.samples": _STATISTICS,
        "metrics.recording.level": _STATISTICS,
        "metrics.sample.window.ms": _STATISTICS,
        "retries": "a call is retried until default.api.timeout.ms",
        "sasl.kerberos.kinit.cmd": "it belongs to GSSAPI",
        "sasl.kerberos.min.time.before.relogin": "it belongs to GSSAPI",
        "sasl.kerberos.service.name": "it belongs to GSSAPI",
        "sasl.kerberos.ticket.renew.jitter": "it belongs to GSSAPI",
        "sasl.kerberos.ticket.renew.window.factor": "it belongs to GSSAPI",
        "sasl.login.connect.timeout.ms": _REAUTHENTICATION,
        "sasl.login.read.timeout.ms": _REAUTHENTICATION,
        "sasl.login.refresh.buffer.seconds": _REAUTHENTICATION,
        "sasl.login.refresh.min.period.seconds": _REAUTHENTICATION,
        "sasl.login.refresh.window.factor": _REAUTHENTICATION,
        "sasl.login.refresh.window.jitter": _REAUTHENTICATION,
        "sasl.login.retry.backoff.max.ms": _REAUTHENTICATION,
        "sasl.login.retry.backoff.ms": _REAUTHENTICATION,
        "sasl.oauthbearer.clock.skew.seconds": _SERVER_ONLY,
        "sasl.oauthbearer.expected.audience": _SERVER_ONLY,
        "sasl.oauthbearer.expected.issuer": _SERVER_ONLY,
        "sasl.oauthbearer.allow.unverified.audience": _SERVER_ONLY,
        "sasl.oauthbearer.allow.unverified.issuer": _SERVER_ONLY,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": _SERVER_ONLY,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _SERVER_ONLY,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _SERVER_ONLY,
        "sasl.oauthbearer.jwks.endpoint.url": _SERVER_ONLY,
        "sasl.oauthbearer.jwt.validator.class": _SERVER_ONLY,
        "sasl.oauthbearer.scope.claim.name": _SERVER_ONLY,
        "sasl.oauthbearer.sub.claim.name": _SERVER_ONLY,
        "ssl.enabled.protocols": "TLS 1.2 and newer, always",
        "ssl.protocol": "TLS 1.2 and newer, always",
        "ssl.keymanager.algorithm": _JAVA_MACHINERY,
        "ssl.provider": _JAVA_MACHINERY,
        "ssl.secure.random.implementation": _JAVA_MACHINERY,
        "ssl.trustmanager.algorithm": _JAVA_MACHINERY,
        "ssl.keystore.password": "PEM has no password but that of the key",
        "ssl.truststore.password": "PEM has no password",
    },
}

_CONTEXT = "give tls=SSLContext, which can do it"
PROVIDER = "give sasl=OAuthBearer(provider), which gets tokens from wherever you like"
NO_CLASSES = "karrow loads no classes that a configuration names"
_CALLBACK = "callbacks belong to the drop-in for confluent_kafka"
_SETTINGS = "karrow gives OpenSSL no extra code; give tls=SSLContext"

_OAUTH = dict.fromkeys(
    (
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
    ),
    PROVIDER,
)
REFUSED: dict[Dialect, dict[str, str]] = {
    "librdkafka": {
        **_OAUTH,
        **dict.fromkeys(
            (
                "enable.sasl.oauthbearer.unsecure.jwt",
                "https.ca.location",
                "https.ca.pem",
                "oauthbearer_token_refresh_cb",
                "sasl.oauthbearer.assertion.jwt.template.file",
                "sasl.oauthbearer.assertion.private.key.pem",
                "sasl.oauthbearer.client.id",
                "sasl.oauthbearer.client.secret",
                "sasl.oauthbearer.config",
                "sasl.oauthbearer.extensions",
                "sasl.oauthbearer.grant.type",
                "sasl.oauthbearer.metadata.authentication.type",
                "sasl.oauthbearer.method",
                "sasl.oauthbearer.sub.claim.name",
            ),
            PROVIDER,
        ),
        **dict.fromkeys(
            (
                "background_event_cb",
                "error_cb",
                "log_cb",
                "stats_cb",
                "throttle_cb",
            ),
            _CALLBACK,
        ),
        **dict.fromkeys(
            (
                "closesocket_cb",
                "connect_cb",
                "open_cb",
                "resolve_cb",
                "socket_cb",
            ),
            "sockets are asyncio's; address_map changes where they connect to",
        ),
        **dict.fromkeys(
            (
                "ssl.cipher.suites",
                "ssl.crl.location",
                "ssl.curves.list",
                "ssl.sigalgs.list",
                "ssl_ca",
                "ssl_certificate",
                "ssl_key",
                "ssl.certificate.verify_cb",
            ),
            _CONTEXT,
        ),
        **dict.fromkeys(
            (
                "ssl.engine.id",
                "ssl.engine.location",
                "ssl.providers",
                "ssl_engine_callback_data",
            ),
            _SETTINGS,
        ),
        "ssl.keystore.location": (
            "karrow reads PEM: openssl pkcs12 -in STORE -out client.pem -nodes, then "
            "ssl.certificate.location and ssl.key.location"
        ),
        "ssl.keystore.password": "karrow reads PEM, not PKCS12",
        "broker.address.family": "give the addresses you want in bootstrap.servers",
        "default_topic_conf": "topic properties belong to producers and consumers",
        "interceptors": "use karrow.events",
        "opaque": "it is a pointer of C programs",
        "message.max.bytes": "it belongs to producers",
        "plugin.library.paths": "karrow loads no code that a configuration names",
        "topic.blacklist": "name the topics you want",
    },
    "java": {
        **_OAUTH,
        **dict.fromkeys(
            (
                "sasl.oauthbearer.assertion.template.file",
                "sasl.oauthbearer.header.urlencode",
                "sasl.oauthbearer.jwt.retriever.class",
            ),
            PROVIDER,
        ),
        **dict.fromkeys(
            (
                "interceptor.classes",
                "sasl.login.class",
                "security.providers",
                "ssl.engine.factory.class",
            ),
            NO_CLASSES,
        ),
        "bootstrap.controllers": "karrow talks to brokers",
        "config.providers": NO_CLASSES,
        "ssl.cipher.suites": _CONTEXT,
    },
}
