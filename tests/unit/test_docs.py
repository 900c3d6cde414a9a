"""The examples in the documentation run, top to bottom, as a reader would run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
WITH_EXAMPLES = [path for path in DOCUMENTS if BLOCK.search(path.read_text("utf-8"))]


@pytest.mark.parametrize("document", WITH_EXAMPLES, ids=lambda path: path.name)
def test_examples_run(document: Path) -> None:
    text = document.read_text("utf-8")
    namespace: dict[str, object] = {}
    for block in BLOCK.finditer(text):
        # Blank lines in front make a traceback point at the line in the document.
        lines_before = text.count("\n", 0, block.start(1))
        exec(compile("\n" * lines_before + block.group(1), str(document), "exec"), namespace)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text("utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []
