"""The harness itself: every release starts, answers, and survives what tests do to it."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from karrow.records import BatchBuilder, RecordReader
from tests.brokers import RELEASES, BrokerDiedError, KafkaCluster, RawConnection, users
from tests.brokers.folders import new_folder, remove_folder
from tests.fix_kafka import NewKafka

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
OLD = [version for version, release in RELEASES.items() if release.zookeeper]
NOT_LEADER, UNKNOWN_LEADER_EPOCH = 6, 76


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def append(cluster: KafkaCluster, topic: str, value: bytes) -> int:
    """Write one record and return its offset."""
    with cluster.node(cluster.leader(topic)).connect() as connection:
        version = min(connection.newest("Produce"), 9)
        batch = BatchBuilder(magic=2 if version >= 3 else 1)
        batch.append(None, value)
        partition = {"index": 0, "records": batch.build()}
        topics = [{"name": topic, "partition_data": [partition]}]
        body = {"acks": -1, "timeout_ms": 10_000, "topic_data": topics}
        answer = connection.request("Produce", body, version)
    found = answer.responses[0].partition_responses[0]
    assert found.error_code == 0
    return int(found.base_offset)


def values(cluster: KafkaCluster, topic: str) -> list[bytes]:
    """What the topic holds."""
    with cluster.node(cluster.leader(topic)).connect() as connection:
        version = min(connection.newest("Fetch"), 11)
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        topics = [{"topic": topic, "partitions": [partition]}]
        body = {"max_wait_ms": 5000, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}
        while True:
            found = connection.request("Fetch", body, version).responses[0].partitions[0]
            # A new leader hears of it a little later than the others.
            if found.error_code not in (NOT_LEADER, UNKNOWN_LEADER_EPOCH):
                break
    assert found.error_code == 0
    return [bytes(record.value or b"") for record in RecordReader(found.records)]


def log_in(connection: RawConnection, mechanism: str, token: bytes) -> Any:
    handshake = connection.request("SaslHandshake", {"mechanism": mechanism}, 1)
    assert handshake.error_code == 0
    return connection.request("SaslAuthenticate", {"auth_bytes": token}, 1)


@pytest.mark.kafka(every_release=True)
def test_release_answers_and_keeps_records(kafka_version: KafkaCluster) -> None:
    with kafka_version.connect() as connection:
        assert connection.request("ApiVersions", {}, 0).error_code == 0
        first, last = connection.api_versions()["Metadata"]
        for version in range(first, min(last, 13) + 1):
            metadata = connection.request("Metadata", {"topics": []}, version)
            brokers = [(broker.node_id, broker.host, broker.port) for broker in metadata.brokers]
            assert brokers == [(1, HOST, kafka_version.ports["PLAINTEXT"][0])]
    topic = kafka_version.create_topic(partitions=1)
    assert append(kafka_version, topic, b"kept") == 0
    assert values(kafka_version, topic) == [b"kept"]


@pytest.mark.kafka(every_release=True)
@pytest.mark.parametrize("kafka_version", OLD, indirect=True)
def test_old_broker_takes_plain_tokens_in_bare_frames(kafka_version: KafkaCluster) -> None:
    with kafka_version.connect("SASL_PLAINTEXT") as connection:
        assert connection.request("SaslHandshake", {"mechanism": "PLAIN"}, 0).error_code == 0
        assert connection.send_token(b"\0alice\0alice-secret") == b""
        assert connection.request("Metadata", {"topics": []}, 1).brokers


def test_release_comes_back_with_its_data(kafka_version: KafkaCluster) -> None:
    topic = kafka_version.create_topic()
    append(kafka_version, topic, b"before")
    kafka_version.node(1).kill()
    kafka_version.node(1).start()
    assert values(kafka_version, topic) == [b"before"]


def test_stopped_broker_comes_back_on_the_same_ports(kafka: KafkaCluster) -> None:
    topic, ports = kafka.create_topic(), kafka.ports
    append(kafka, topic, b"before")
    kafka.stop()
    with pytest.raises(ConnectionRefusedError):
        kafka.node(1).connect()
    kafka.start()
    assert kafka.ports == ports
    append(kafka, topic, b"after")
    assert values(kafka, topic) == [b"before", b"after"]


def test_paused_broker_accepts_and_says_nothing(kafka: KafkaCluster) -> None:
    kafka.node(1).pause()
    with kafka.node(1).connect(timeout=0.3) as connection:
        with pytest.raises(TimeoutError):
            connection.request("ApiVersions", {}, 0)
        kafka.node(1).resume()
        connection.socket.settimeout(10.0)
        assert connection.receive().error_code == 0


@pytest.mark.parametrize("mechanism", users.MECHANISMS)
def test_sasl_listeners_offer_every_mechanism(kafka: KafkaCluster, mechanism: str) -> None:
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        tls = kafka.tls.context() if listener == "SASL_SSL" else None
        with RawConnection(HOST, kafka.ports[listener][0], tls=tls) as connection:
            answer = connection.request("SaslHandshake", {"mechanism": mechanism}, 1)
            assert answer.error_code == 0


@pytest.mark.parametrize(
    ("mechanism", "token", "code"),
    [
        ("PLAIN", b"\0alice\0alice-secret", 0),
        ("PLAIN", b"\0alice\0wrong", 58),
        (
            "OAUTHBEARER",
            b"n,,\1auth=Bearer " + users.unsecured_token("alice").encode() + b"\1\1",
            0,
        ),
        ("SCRAM-SHA-256", b"n,,n=alice,r=nonce", 0),
        ("SCRAM-SHA-512", b"n,,n=alice,r=nonce", 0),
        ("SCRAM-SHA-512", b"n,,n=nobody,r=nonce", 58),
    ],
)
def test_users_are_known(kafka: KafkaCluster, mechanism: str, token: bytes, code: int) -> None:
    with kafka.connect("SASL_PLAINTEXT") as connection:
        assert log_in(connection, mechanism, token).error_code == code


@pytest.mark.parametrize("name", [HOST, "localhost"])
def test_tls_with_our_authority(kafka: KafkaCluster, name: str) -> None:
    port = kafka.ports["SSL"][0]
    with RawConnection(HOST, port, tls=kafka.tls.context(), server_name=name) as connection:
        assert connection.request("ApiVersions", {}, 0).error_code == 0


@pytest.mark.parametrize(
    ("listener", "reason"),
    [("SSL", "self-signed|unable to get"), ("EXPIRED", "expired"), ("WRONG_NAME", "IP address")],
)
def test_bad_certificates_are_refused(kafka: KafkaCluster, listener: str, reason: str) -> None:
    ca = kafka.tls.stranger if listener == "SSL" else kafka.tls.ca
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        RawConnection(HOST, kafka.ports[listener][0], tls=kafka.tls.context(ca))


def test_mutual_tls_wants_a_certificate(kafka: KafkaCluster) -> None:
    port = kafka.ports["MUTUAL"][0]
    known = kafka.tls.context(client=kafka.tls.client)
    with RawConnection(HOST, port, tls=known) as connection:
        assert connection.request("ApiVersions", {}, 0).error_code == 0
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        RawConnection(HOST, port, tls=kafka.tls.context()) as connection,
    ):
        connection.request("ApiVersions", {}, 0)


def test_leadership_moves_when_a_node_is_killed(kafka_three: KafkaCluster) -> None:
    topic = kafka_three.create_topic()
    append(kafka_three, topic, b"kept")
    killed = kafka_three.leader(topic)
    kafka_three.node(killed).kill()
    wait_until(lambda: kafka_three.leader(topic) not in (killed, -1))
    assert values(kafka_three, topic) == [b"kept"]


def test_broker_that_dies_at_start_tells_why(new_kafka: NewKafka) -> None:
    with pytest.raises(BrokerDiedError, match=r"ended with 1(?s:.*)NONSENSE"):
        new_kafka(properties={"listeners": "NONSENSE://127.0.0.1:1"})


def test_transactions_may_be_of_the_first_kind(new_kafka: NewKafka) -> None:
    software = {"client_software_name": "karrow", "client_software_version": "1"}
    with new_kafka(features={"transaction.version": 1}).connect() as connection:
        features = connection.request("ApiVersions", software, 3).finalized_features
    assert {f.name: f.max_version_level for f in features}["transaction.version"] == 1


@pytest.mark.parametrize(("ci", "outcome"), [("", 0), ("1", 1)])
def test_without_maven_tests_are_skipped_but_not_in_ci(
    tmp_path: Path, ci: str, outcome: int
) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "KARROW_CACHE": str(tmp_path), "CI": ci}
    test = "tests/contract/test_brokers.py::test_mutual_tls_wants_a_certificate"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert run.returncode == outcome
    assert (b"NOT TESTED AGAINST REAL BROKERS" in run.stdout) == (not ci)
    assert b"not found: install" in run.stdout


def test_nothing_outlives_a_killed_run(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import pathlib, sys, threading, time
        from tests.brokers.folders import new_folder
        from tests.brokers.process import JavaProcess
        process = JavaProcess("sleep", pathlib.Path(sys.argv[1]))
        starter = threading.Thread(target=process.start, args=(["/bin/sleep", "600"],))
        starter.start()
        starter.join()
        print(process.pid, new_folder(), flush=True)
        time.sleep(600)
    """)
    command = [sys.executable, "-c", script, str(tmp_path / "log")]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tools'}"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        pid, folder = run.stdout.readline().decode().split()
        time.sleep(0.2)
        assert is_alive(int(pid))
        remove_folder(new_folder())
        assert Path(folder).exists()
        run.kill()
    wait_until(lambda: not is_alive(int(pid)))
    remove_folder(new_folder())
    assert not Path(folder).exists()


def is_alive(pid: int) -> bool:
    # In a container nobody may collect orphans, so a zombie counts as dead.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
