"""What confluent-kafka's AdminClient returns: futures by target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaException

TIMEOUT = 20.0


def results(futures: Mapping[Any, Any]) -> list[Any]:
    """What all targets gave."""
    return [future.result(TIMEOUT) for future in futures.values()]


def failure(futures: Mapping[Any, Any]) -> str:
    """The error's name of a call with one target that fails."""
    (future,) = futures.values()
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT)
    name: str = caught.value.args[0].name()
    return name
