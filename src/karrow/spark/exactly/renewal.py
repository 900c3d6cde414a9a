"""Keeps the ledger of an idle query alive: brokers forget the offsets of groups after some days.

Rules:
- It begins when a run of a query opens the sink and ends with the query, or when the sink is
  another one's.
- It writes the entry again, in a transaction of its own, when no batch has for a day, or since the
  sink was opened.
- Whatever goes wrong is told in the log and tried again: nobody else would hear of it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from karrow.spark.exactly.batches import Batches

_log = logging.getLogger(__name__)

DAY = 86400.0
# How often it looks; the query's end is noticed as late.
LOOK = 600.0


class Renewal:
    """A thread that looks at a sink from time to time."""

    def __init__(
        self,
        batches: Batches,
        is_active: Callable[[], bool],
        *,
        interval: float = DAY,
        look: float = LOOK,
    ) -> None:
        self._batches = batches
        self._is_active = is_active
        self._interval = interval
        self._look = min(look, interval / 2)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="karrow-ledger", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; a renewal that is under way comes to its end."""
        self._over.set()

    def _main(self) -> None:
        while not self._over.wait(self._look):
            if not self._is_active():
                return
            try:
                self._batches.renew(self._interval)
            except Exception as error:  # noqa: BLE001 - a thread that dies tells nobody
                _log.warning(
                    "sink %s: its ledger was not renewed: %s", self._batches.sink_id, error
                )
                if self._batches.is_broken:
                    return  # nothing that this run does would help
