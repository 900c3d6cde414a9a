"""``module:function`` of a step."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from karrow.errors import ConfigError
from karrow.spark.pipeline.definition import Step
from karrow.spark.pipeline.functions import load

MODULE = """
def enrich(rows):
    return rows + "!"

class Shop:
    @staticmethod
    def both(one, two):
        return one + two

number = 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop_of_this_test.py").write_text(MODULE)
    (tmp_path / "broken_of_this_test.py").write_text("import there_is_no_such_module")
    monkeypatch.delitem(sys.modules, "shop_of_this_test", raising=False)
    return tmp_path


def step(function: str | Callable[..., Any], *inputs: str) -> Step:
    return Step(
        name="s", where="[steps.s]", sql=None, function=function, inputs=inputs, watermark=None
    )


def test_a_function_beside_the_file_is_found_and_goes_along(folder: Path) -> None:
    found = load(step("shop_of_this_test:enrich", "orders"), folder)
    assert found("a") == "a!"
    assert str(folder) not in sys.path
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer)('b'))"
    elsewhere = subprocess.run(
        [sys.executable, "-c", program],
        input=cloudpickle.dumps(found),  # type: ignore[no-untyped-call]
        capture_output=True,
        check=True,
    )
    assert elsewhere.stdout == b"b!\n"


def test_a_function_may_be_inside_something_or_be_given(folder: Path) -> None:
    assert load(step("shop_of_this_test:Shop.both", "a", "b"), folder)("x", "y") == "xy"
    assert load(step(len, "a"), folder) is len


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("no_such_module:f", "[steps.s] function No module named 'no_such_module'"),
        ("broken_of_this_test:f", "No module named 'there_is_no_such_module'"),
        ("shop_of_this_test:enrch", "has no 'enrch'; did you mean 'enrich'?"),
        ("shop_of_this_test:number", "shop_of_this_test:number is no function"),
        ("shop_of_this_test:Shop.both", "it is called with its inputs orders"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, function: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(step(function, "orders"), folder)
    assert message in str(caught.value)
