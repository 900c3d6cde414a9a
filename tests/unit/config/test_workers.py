"""The options of workers."""

from __future__ import annotations

import dataclasses

import pytest

import karrow
from karrow.config import ConsumerConfig, WorkerConfig
from karrow.config.options import ConsumerOptions, WorkerOptions
from karrow.errors import ConfigError

OWN = [name for name in WorkerConfig.describe() if name not in ConsumerConfig.describe()]


@pytest.mark.parametrize("name", OWN)
def test_every_option_is_documented_and_in_range_by_default(name: str) -> None:
    about = WorkerConfig.describe()[name]
    assert about.doc.endswith(".")
    default = next(f.default for f in dataclasses.fields(WorkerConfig) if f.name == name)
    if default is not None:
        assert about.check(name, default) == default


def test_keywords_are_the_options() -> None:
    own = set(WorkerOptions.__annotations__) - set(ConsumerOptions.__annotations__)
    assert own == set(OWN)


def test_options_of_consumers_are_options_of_workers() -> None:
    made = karrow.WorkerConfig.make(None, {"group": "g", "start": "earliest", "threads": 2})
    assert (made.group, made.start, made.threads, made.max_restarts) == ("g", "earliest", 2, 3)
    assert made.replace(shutdown=1).shutdown == 1.0
    with pytest.raises(ConfigError, match="max_restarts=-1 is outside its range"):
        WorkerConfig(max_restarts=-1)


def test_defaults_are_those_that_the_documentation_names() -> None:
    made = WorkerConfig()
    assert (made.shutdown, made.max_restarts, made.max_seconds) == (5.0, 3, 5.0)
    assert (made.commit_interval, made.commit_threshold) == (5.0, 100)


def test_from_the_environment() -> None:
    made = WorkerConfig.from_env({"KARROW_GROUP": "g", "KARROW_COMMIT_THRESHOLD": "7"})
    assert (made.group, made.commit_threshold) == ("g", 7)
