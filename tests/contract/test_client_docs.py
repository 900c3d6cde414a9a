"""The examples about Client run against a real broker, top to bottom, as readers run them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.brokers import KafkaCluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "client.md"
BLOCK = re.compile(r"^```python kafka\n(.*?)^```", re.MULTILINE | re.DOTALL)
IN_THE_TEXT = "localhost:9092"


def test_examples_run(kafka: KafkaCluster) -> None:
    text = DOCUMENT.read_text("utf-8")
    assert IN_THE_TEXT in text
    namespace: dict[str, object] = {}
    for block in BLOCK.finditer(text):
        # Blank lines in front make a traceback point at the line in the document.
        source = "\n" * text.count("\n", 0, block.start(1)) + block.group(1)
        exec(
            compile(source.replace(IN_THE_TEXT, kafka.bootstrap()), str(DOCUMENT), "exec"),
            namespace,
        )
