"""Programs that read from a real broker and are told to end (row 40 of the failure table)."""

from __future__ import annotations

import subprocess
import sys

import pytest

import karrow
from tests.brokers import KafkaCluster

TIMEOUT = 60.0
COUNT = 200
HEAD = """
import signal, sys, time, karrow
bootstrap, topic, group = sys.argv[1:]
"""
CONSUMER = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with karrow.Consumer(bootstrap, topic, group=group, start="earliest", max_wait=0.05) as consumer:
    for record in consumer:
        print(record.offset, flush=True)
        time.sleep(0.02)
"""
WORKERS = """
class Printing(karrow.Handler):
    def handle_records(self, records):
        for record in records:
            print(record.offset, flush=True)
            time.sleep(0.02)
        return karrow.Commit.ASYNC

karrow.run_group(
    Printing, bootstrap, group=group, topics=[topic], start="earliest", batch_records=1
)
"""


@pytest.mark.parametrize("program", [CONSUMER, WORKERS], ids=["consumer", "workers"])
def test_sigterm_commits_what_is_done_and_leaves_the_group(
    kafka: KafkaCluster, program: str
) -> None:
    topic = kafka.create_topic()
    group = f"told-to-end-{topic}"
    with karrow.Producer(kafka.bootstrap()) as producer:
        for _ in range(COUNT):
            producer.send(topic, b"x")
    command = [sys.executable, "-W", "error", "-c", HEAD + program]
    with subprocess.Popen(
        [*command, kafka.bootstrap(), topic, group],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(5)]
        process.terminate()
        rest, complaints = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, complaints) == (0, "")
    offsets = [int(line) for line in [*seen, *rest.splitlines()]]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) < COUNT, "it read on"
    with karrow.Admin(kafka.bootstrap()) as admin, karrow.Client(kafka.bootstrap()) as client:
        assert admin.describe_group(group).members == ()
        (stored,) = client.committed_offsets(group, [topic]).values()
    # A consumer's last record may have been in hand; a worker's is finished first.
    done = [len(offsets)] if program is WORKERS else [len(offsets) - 1, len(offsets)]
    assert stored.offset in done
