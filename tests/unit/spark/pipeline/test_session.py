"""Which Python the workers of a pipeline's Spark are."""

from __future__ import annotations

import os
import sys

import pytest

from karrow.spark.pipeline.session import PYTHON, use_this_python


@pytest.mark.parametrize(
    ("settings", "environment", "chosen"),
    [
        ({}, None, sys.executable),
        ({}, "/theirs/python", "/theirs/python"),
        ({"spark.pyspark.python": "./env/bin/python"}, "/theirs/python", "./env/bin/python"),
    ],
)
def test_workers_are_this_python_unless_somebody_says_more(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    environment: str | None,
    chosen: str,
) -> None:
    monkeypatch.delenv(PYTHON, raising=False)
    if environment is not None:
        monkeypatch.setenv(PYTHON, environment)
    use_this_python(settings)
    assert os.environ[PYTHON] == chosen
