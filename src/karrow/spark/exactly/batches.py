"""Which batch of a query is next, which is in already, and how often it is tried: the protocol.

Rules:
- A run of a query opens the sink with its first batch, once: that fences older runs, and then reads
  the ledger. Whatever comes later of an older run is refused. Who has started the query itself, and
  so knows that it is the owner, may open it before.
- The ledger's last batch is in: it is passed over. The next one is written. Any other means that
  checkpoint and ledger do not belong together, and that stops the query; so does the ledger of
  another query. Nothing is guessed.
- A batch is written, noted in the ledger and committed in one transaction. Nothing is in doubt when
  the commit goes out: whoever writes has returned, with every row acknowledged.
- After any failure the attempt is fenced, and then the ledger is read: it may tell that the commit
  came to pass all the same. If not, the batch is tried again, ``retries`` times.
- An attempt that was interrupted is fenced before the next thing happens.
- An empty batch is noted as well, or the next one would not follow the last.
- A ledger without an entry is right for batch 0 only. For a later one ``on_missing`` tells: stop;
  "redo", take this batch as not committed; "skip", take it as committed, and note that.
- An entry that gets old is renewed, since the broker forgets the offsets of groups. How old it is
  when the sink is opened nobody knows, so it counts as old.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Literal, Protocol

from karrow import events
from karrow.aio.producing.coordinator_calls import Identity
from karrow.errors import AuthorizationError, ConfigError, KarrowError, StateError
from karrow.spark.exactly.crash import crash_point, note_batch
from karrow.spark.exactly.ledger import Entry

OnMissing = Literal["stop", "redo", "skip"]
ON_MISSING = ("stop", "redo", "skip")
# The local property in which Spark tells a query's id, which stays the same over restarts.
QUERY_ID = "sql.streaming.queryId"

# What writes a batch: as whom, in which kind of transaction; gives the number of rows.
Write = Callable[[Identity, int], int]


class Steps(Protocol):
    """The transaction, step by step, without await."""

    @property
    def who(self) -> Identity:
        """Who writes now."""

    @property
    def version(self) -> int:
        """Which kind of transactions the cluster has."""

    def open(self) -> Entry | None:
        """Take the sink over; gives the ledger's entry."""

    def store(self, entry: Entry) -> None:
        """Put an entry into the transaction."""

    def end(self) -> None:
        """Commit, and be somebody new."""

    def fence(self) -> Entry | None:
        """Abort, be somebody new, and give the ledger's entry."""


class Batches:
    """The batches of one sink, one after the other."""

    def __init__(
        self,
        steps: Steps,
        *,
        sink_id: str,
        on_missing: OnMissing = "stop",
        retries: int = 3,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if on_missing not in ON_MISSING:
            choices = ", ".join(map(repr, ON_MISSING))
            raise ConfigError(f"on_missing_ledger={on_missing!r} is none of {choices}")
        if type(retries) is not int or retries < 0:
            raise ConfigError(f"retries={retries!r} is no number from 0 on")
        self._steps = steps
        self.sink_id = sink_id
        self._on_missing = on_missing
        self._retries = retries
        self._clock = clock
        self._lock = threading.Lock()
        # The run that has the sink, and those before it in this process.
        self._run: str | None = None
        self._runs: set[str] = set()
        self._is_broken = False
        self._last: Entry | None = None
        self._noted_at = -math.inf
        # Whether rows or an entry may be in a transaction that was not ended.
        self._is_doubtful = False
        self._done_here: int | None = None

    def run(self, query: str, run: str, batch: int, write: Write) -> bool:
        """Have a batch written unless it is in; whether it was written now."""
        note_batch(batch)
        with self._lock:
            self._begin(run)
            if not self._is_wanted(query, batch):
                return False
            return self._attempts(query, batch, write)

    def open(self, run: str) -> None:
        """Take the sink over for a run whose first batch may come late, so that it can be renewed.

        Without an entry there is nothing to renew, and the broker forgets who writes nothing: then
        the first batch opens it.
        """
        with self._lock:
            if run == self._run:
                return
            self._begin(run)
            if self._last is None:
                self._run = None
                self._runs.discard(run)

    def renew(self, older_than: float) -> bool:
        """Write the entry again if it was written longer ago than that; whether it was."""
        with self._lock:
            is_fresh = self._clock() - self._noted_at < older_than
            if self._run is None or self._is_broken or is_fresh:
                return False
            if self._is_doubtful:
                self._fence()
            return self._last is not None and self._renewed(self._last)

    def _renewed(self, last: Entry) -> bool:
        """Whatever becomes of it, the entry is the same: only an attempt that was heard counts."""
        done = self._done_here
        try:
            self._attempt(last.query, last.batch, lambda _who, _version: last.rows)
        except Exception:
            self._fence()
            raise
        self._done_here = done
        return True

    @property
    def is_broken(self) -> bool:
        """Whether this run can do nothing more."""
        return self._is_broken

    # ---- the beginning

    def _begin(self, run: str) -> None:
        if run != self._run:
            if run in self._runs:
                raise StateError(
                    f"sink {self.sink_id}: another run of the query has it now",
                    hint="a function of exactly_once is for one query at a time",
                )
            self._runs.add(run)
            self._run, self._is_broken, self._is_doubtful, self._done_here = run, True, False, None
            self._last = self._steps.open()
            self._noted_at = -math.inf
            self._is_broken = False
            crash_point("opened")
        if self._is_broken:
            raise StateError(
                f"sink {self.sink_id}: an earlier batch of this run has failed",
                hint="restart the query",
            )
        if self._is_doubtful:
            self._fence()

    def _is_wanted(self, query: str, batch: int) -> bool:
        """Whether a batch is the next one; raises for one that neither is nor was the last."""
        last = self._last
        if last is None:
            return batch == 0 or self._without_entry(query, batch)
        if last.query != query:
            raise StateError(
                f"sink {self.sink_id} belongs to the query {last.query}, and this is {query}",
                hint="a checkpoint and a sink_id belong together: give a new checkpoint a new "
                "sink_id, or the old checkpoint its own",
            )
        if batch == last.batch:
            if self._done_here == batch:
                raise StateError(
                    f"sink {self.sink_id}: batch {batch} was written already in this run",
                    hint="give all rows of a batch in one call",
                )
            return False
        if batch == last.batch + 1:
            return True
        raise StateError(
            f"sink {self.sink_id}: the ledger's last batch is {last.batch}, and this is {batch}",
            hint="checkpoint and ledger do not agree; was an old checkpoint restored, or a batch "
            "left out? Every batch has to be given, empty ones as well",
        )

    def _without_entry(self, query: str, batch: int) -> bool:
        """What to do about a later batch when the ledger is empty."""
        if self._on_missing == "stop":
            raise StateError(
                f"sink {self.sink_id}: batch {batch} has no ledger to tell whether it is in",
                hint="it expired, was deleted, or the checkpoint had another sink_id before: then "
                "give that one. Otherwise look whether the last batch is in the topic, then give "
                "on_missing_ledger='redo' or 'skip'",
            )
        if self._on_missing == "skip":
            self._attempts(query, batch, lambda _who, _version: 0)
            self._done_here = None
            return False
        return True

    # ---- a batch

    def _attempts(self, query: str, batch: int, write: Write) -> bool:
        for left in range(self._retries, -1, -1):
            try:
                self._attempt(query, batch, write)
            except Exception as error:
                if self._has_come_to_pass(batch):
                    return True
                if not left or isinstance(error, (AuthorizationError, ConfigError)):
                    raise
                self._tell(batch, error)
            else:
                return True
        return False

    def _tell(self, batch: int, error: Exception) -> None:
        events.emit(
            "sink.retry",
            {"count": 1},
            sink_id=self.sink_id,
            batch=batch,
            kind=type(error).__name__,
            reason=str(error).partition("\n")[0],
            error=error,
        )

    def _attempt(self, query: str, batch: int, write: Write) -> None:
        self._is_doubtful = True
        rows = write(self._steps.who, self._steps.version)
        crash_point("checked")
        entry = Entry(query, batch, rows)
        self._steps.store(entry)
        crash_point("stored")
        self._steps.end()
        self._is_doubtful = False
        self._note(entry)
        crash_point("committed")

    def _has_come_to_pass(self, batch: int) -> bool:
        """Abort a failed attempt; whether its commit went through all the same."""
        self._fence()
        last = self._last
        if last is None or last.batch < batch:
            return False
        self._note(last)
        return True

    def _note(self, entry: Entry) -> None:
        self._last, self._done_here = entry, entry.batch
        self._noted_at = self._clock()

    def _fence(self) -> None:
        """Abort what may be open; a sink that cannot is of no use to this run any more."""
        try:
            self._last = self._steps.fence()
        except KarrowError:
            self._is_broken = True
            raise
        self._is_doubtful = False
