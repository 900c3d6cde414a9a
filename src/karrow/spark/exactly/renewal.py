"""Keeps the ledger of an idle query alive: brokers forget the offsets of groups after some days.

Rules:
- It begins with a query's first batch and ends with the query, or when the sink is another one's.
- It writes the entry again, in a transaction of its own, when no batch has for a day.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from karrow.errors import KarrowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from karrow.spark.exactly.batches import Batches

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
            except KarrowError:
                if self._batches.is_broken:
                    return  # the next batch says why
