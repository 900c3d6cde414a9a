"""The examples about Admin run against a real broker, top to bottom, as a reader would run them."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.brokers import KafkaCluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "admin.md"
BLOCK = re.compile(r"^```python kafka\n(.*?)^```", re.MULTILINE | re.DOTALL)
IN_THE_TEXT = "localhost:9092"
# A reader takes longer than the brokers, which learn a moment later what the controller decided.
READING = 0.2


def test_examples_run(kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCUMENT.read_text("utf-8")
    assert IN_THE_TEXT in text
    namespace: dict[str, object] = {}
    for block in BLOCK.finditer(text):
        # Blank lines in front make a traceback point at the line in the document.
        source = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        source = source.replace(IN_THE_TEXT, kafka.bootstrap())
        exec(compile(source, str(DOCUMENT), "exec"), namespace)
        time.sleep(READING)
    assert "Empty" in capsys.readouterr().out
