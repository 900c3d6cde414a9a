"""The examples in docstrings run; public names of the lower rooms are documented.

doctest alone would skip the classes that say they stand in ``karrow``.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest

ROOMS = ["karrow.types", "karrow.config", "karrow.events", "karrow.wire.sasl"]


def modules() -> Iterator[ModuleType]:
    for name in ROOMS:
        room = importlib.import_module(name)
        yield room
        for info in pkgutil.iter_modules(getattr(room, "__path__", [])):
            yield importlib.import_module(f"{name}.{info.name}")


@pytest.mark.parametrize("module", list(modules()), ids=lambda module: module.__name__)
def test_examples_run_and_names_are_documented(module: ModuleType) -> None:
    assert module.__doc__
    runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
    doctest.testmod(module, raise_on_error=True)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__
            for test in doctest.DocTestFinder().find(value, name, False, dict(vars(module))):
                runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
