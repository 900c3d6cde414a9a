"""``module:function`` out of a pipeline's file."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from karrow.config.option import nearest
from karrow.errors import ConfigError

if TYPE_CHECKING:
    from karrow.spark.pipeline.definition import Step

__all__ = ["load"]


def load(step: Step, folder: Path) -> Callable[..., Any]:
    """The function of a step, which takes as many tables as the step has inputs."""
    found = _imported(step, folder) if isinstance(step.function, str) else step.function
    name = step.function if isinstance(step.function, str) else repr(step.function)
    if not callable(found):
        raise ConfigError(f"{step.where} function {name} is no function")
    try:
        inspect.signature(found).bind(*step.inputs)
    except TypeError as error:
        hint = f"it is called with its inputs {', '.join(step.inputs)}"
        raise ConfigError(f"{step.where} function {name}: {error}", hint=hint) from None
    return found


def _imported(step: Step, folder: Path) -> Any:
    name, _, function = str(step.function).partition(":")
    with _importable(folder):
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            hint = f"modules are looked for in {folder} and where Python looks"
            raise ConfigError(f"{step.where} function {error}", hint=hint) from error
    if Path(module.__file__ or "").parent == folder:
        _send_along(module)
    try:
        return reduce(getattr, function.split("."), module)
    except AttributeError:
        near = nearest(function, vars(module))
        advice = f"did you mean {near!r}?" if near else None
        what = f"{step.where} function: {name} has no {function!r}"
        raise ConfigError(what, hint=advice) from None


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _send_along(module: Any) -> None:
    """Workers find installed modules; one that lies beside the file goes with what is called."""
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
