"""The package as a user meets it: import, public names, registration with Spark."""

from __future__ import annotations

import importlib.metadata
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import karrow

HEAVY = ["asyncio", "cramjam", "crc32c", "karrow.records", "karrow.wire", "pyarrow"]


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_import_takes_under_50_ms() -> None:
    program = (
        "from time import perf_counter as now; start = now(); import karrow; print(now() - start)"
    )
    # The least of several: the question is what the import costs, not how busy the machine is.
    assert min(float(run(program)) for _ in range(5)) < 0.050


def test_import_is_light() -> None:
    program = (
        "import sys, karrow, threading;"
        f"print([name for name in {HEAVY} if name in sys.modules], threading.active_count())"
    )
    assert run(program) == "[] 1"


def test_spark_can_discover_the_registration_module() -> None:
    assert "pyspark_karrow" in {module.name for module in pkgutil.iter_modules()}


def test_registration_module_does_no_harm_where_spark_is_not() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import pyspark_karrow as found;"
    assert run(f"{program} print(hasattr(found, 'DefaultSource'))") == "False"


def test_registration_module_does_no_harm_where_something_is_broken() -> None:
    """Whatever it is: an old pyspark, or a package beside it, raises more than ImportError."""
    program = "import sys; broken = type('Broken', (), {'__getattr__': lambda *_: 1 / 0})();"
    program += "sys.modules['karrow.spark.data_source'] = broken; import pyspark_karrow as found;"
    assert run(f"{program} print(hasattr(found, 'DefaultSource'))") == "False"


def test_version_is_the_installed_one() -> None:
    assert karrow.__version__ == importlib.metadata.version("karrow")


@pytest.mark.parametrize("name", karrow.__all__)
def test_public_name_resolves(name: str) -> None:
    assert getattr(karrow, name) is not None
    assert name in dir(karrow)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = karrow.no_such_name


@pytest.mark.parametrize("room", ["errors", "records", "wire"])
def test_public_names_of_a_room_have_docstrings(room: str) -> None:
    module: ModuleType = getattr(karrow, room)
    bare = [
        name
        for name in module.__all__
        if (inspect.isroutine(value := getattr(module, name)) or inspect.isclass(value))
        and not inspect.getdoc(value)
    ]
    assert module.__doc__
    assert bare == []
