"""Errors of ``karrow.spark.exactly`` in the words of options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from karrow.errors import KarrowError

# What the parameters of exactly_once are called among Spark's options.
OPTIONS = {
    "on_missing_ledger": "onMissingLedger",
    "ledger_topic": "ledgerTopic",
    "sink_id": "sinkId",
    "transaction_timeout": "kafka.transaction.timeout.ms",
}


@contextmanager
def options_by_name() -> Iterator[None]:
    """Let errors name what stands in the program."""
    try:
        yield
    except KarrowError as error:
        for name, option in OPTIONS.items():
            error.message = error.message.replace(name, option)
            error.hint = error.hint and error.hint.replace(name, option)
        raise
