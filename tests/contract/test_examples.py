"""Examples that need a broker run against a real one, top to bottom, as a reader would run them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.brokers import KafkaCluster
from tests.fix_kafka import own_kafka

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python kafka\n(.*?)^```", re.MULTILINE | re.DOTALL)
IN_THE_TEXT = "localhost:9092"
# A reader takes longer than the brokers, which learn a moment later what the controller decided.
READING = 0.2


@pytest.fixture(scope="module")
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with own_kafka(request.config) as cluster:
        yield cluster


def run_examples(document: Path, replaced: dict[str, str]) -> None:
    text = document.read_text("utf-8")
    assert IN_THE_TEXT in text
    namespace: dict[str, object] = {}
    for block in BLOCK.finditer(text):
        # Blank lines in front make a traceback point at the line in the document.
        source = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        for name, other in replaced.items():
            source = source.replace(name, other)
        exec(compile(source, str(document), "exec"), namespace)
        time.sleep(READING)


def test_examples_about_the_client(kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    run_examples(ROOT / "docs" / "client.md", {IN_THE_TEXT: kafka.bootstrap()})
    assert "zstd" in capsys.readouterr().out


def test_examples_about_admin(kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    run_examples(ROOT / "docs" / "admin.md", {IN_THE_TEXT: kafka.bootstrap()})
    assert "Empty" in capsys.readouterr().out


def test_examples_in_the_readme(kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    topic = f"orders-{uuid4().hex}"
    quoted = {'"orders"': f'"{topic}"'}
    run_examples(ROOT / "README.md", {IN_THE_TEXT: kafka.bootstrap(), **quoted})
    assert capsys.readouterr().out == "0\n4\n0 None b'a'\n1 b'key' b'b'\n"


def test_examples_about_the_producer(
    kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"orders-{uuid4().hex}"
    quoted = {'"orders"': f'"{topic}"'}
    run_examples(ROOT / "docs" / "producer.md", {IN_THE_TEXT: kafka.bootstrap(), **quoted})
    assert topic in capsys.readouterr().out


def test_examples_about_the_consumer(
    kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"parcels-{uuid4().hex}"
    quoted = {'"parcels"': f'"{topic}"'}
    run_examples(ROOT / "docs" / "consumer.md", {IN_THE_TEXT: kafka.bootstrap(), **quoted})
    assert capsys.readouterr().out.count("handled") == 300
