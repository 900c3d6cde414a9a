"""A transaction that many processes write in, and its owner: who opens it, ends it, and aborts it.

Rules:
- ``open`` is the only call that takes the transactional id from whoever has it (InitProducerId
  without an identity), and a sink makes it once for each start of a query. So a driver that was
  replaced can never take the id back, unless the broker has forgotten it meanwhile: then ``fence``
  gives it to whoever comes first, and the ledger tells what was committed.
- The ledger is read after an identity was had, never before: InitProducerId has waited until the
  transaction before was complete, and whoever could still change the ledger is fenced.
- No writer is under way when ``end`` is called, and every row is acknowledged. Kafka answers EndTxn
  before its markers are written, so that a late batch of the same epoch would be committed as well.
- With a new epoch nobody has come between. With a new producer id, out of any other answer than
  that of EndTxn, somebody may have, if the broker forgot the old one: then the ledger is read.
- EndTxn is repeated, in the same direction and with the same identity, while no answer comes.
- A transaction is aborted by ``fence``, by InitProducerId with the identity that it has, so that
  nothing that is still under way can be written after it. EndTxn would let it (KAFKA-14053).
- InitProducerId aborts what is open even for a producer that was replaced, and whose successor it
  is that has it open. That does no harm to what is true, but to the successor's attempt; so the
  coordinator is asked first who has it open.
- Whatever is not known after a failure is for the ledger to say: ``fence`` reads it.
- A batch is noted if its topics are those that were looked for before it was written. If one was
  made anew meanwhile, rows that brokers have acknowledged are gone with the old one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from karrow.aio.calls.base import Reply, Request
from karrow.aio.producing.coordinator_calls import (
    IMPLICIT,
    NOBODY,
    CoordinatorCalls,
    Identity,
)
from karrow.config import ClientConfig
from karrow.errors import (
    AuthorizationError,
    ConfigError,
    InvalidProducerEpoch,
    InvalidTransactionTimeout,
    KarrowError,
    ProducerFenced,
    RemoteProtocolError,
    StateError,
    TransactionalIdNotFound,
    UnsupportedVersion,
    error_for,
)
from karrow.net.retry import is_commit_retriable
from karrow.spark import pool
from karrow.spark.exactly.crash import crash_point
from karrow.spark.exactly.rights import require_topics
from karrow.sync.loop import run
from karrow.types import AclOperation, CommittedOffset, GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from karrow.aio.client import AsyncClient
    from karrow.config.producer import ProducerConfig
    from karrow.spark.exactly.ledger import Entry, Ledger
    from karrow.types import TopicMetadata

PREFIX = "karrow.sink."
ONGOING = "Ongoing"
# Answers that leave open who has a transaction open.
UNKNOWN = (TransactionalIdNotFound, AuthorizationError)


class SharedTransaction(CoordinatorCalls):
    """The owner's side of a sink's transactions, one after the other.

    ``who`` and ``version`` are what writers have to be told. Its coroutines belong to the loop of
    ``client``, whose connections it shares.

    Example::

        transaction = SharedTransaction(client, config, ledger)
        last = await transaction.open()
        ...                                   # others write as transaction.who
        await transaction.store(Entry(query, batch, rows))
        await transaction.end()               # or, when anything failed: await transaction.fence()
    """

    def __init__(self, client: AsyncClient, config: ProducerConfig, ledger: Ledger) -> None:
        super().__init__(config, client.cluster)
        self.client = client
        self.ledger = ledger
        self.who = NOBODY
        self.version = 1

    async def open(self) -> Entry | None:
        """Take the transactional id; gives the last batch that is committed."""
        await self.ledger.prepare(self.client)
        version = await self._transaction_version()
        self.version = IMPLICIT if version >= IMPLICIT else 1
        try:
            self.who = await self._init_producer_id()
        except InvalidTransactionTimeout:
            raise ConfigError(
                f"transaction_timeout={self._timeout:g} s is more than the broker allows",
                hint="give transaction_timeout, or raise the broker's transaction.max.timeout.ms",
            ) from None
        crash_point("open-claimed")
        return await self.ledger.read(self.client)

    async def store(self, entry: Entry) -> None:
        """Put the entry of a batch beside its rows."""
        await self.ledger.write(self, entry)

    async def end(self) -> None:
        """Commit, and have a fresh identity after it; raises when that is not known to be done."""
        after = await self._committed()
        crash_point("ended")
        before, self.who = self.who, after or await self._init_producer_id(self.who)
        if after is None and self.who.producer_id != before.producer_id:
            raise StateError(
                f"{self.transactional_id} was forgotten by the broker, or ran out of epochs; who "
                "had it since the commit, the ledger tells"
            )

    async def fence(self) -> Entry | None:
        """Abort what is open, so that nothing of it can follow; gives the last committed batch."""
        try:
            is_open = await self._is_ours_open()
            crash_point("fence-looked")
            self.who = await self._fence_producer(self.who, is_open=is_open)
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise self._replaced() from error
        crash_point("fenced")
        return await self.ledger.read(self.client)

    async def store_offset(self, group: str, where: TopicPartition, entry: CommittedOffset) -> None:
        """Store an offset of a group when the transaction commits."""
        is_implicit = self.version == IMPLICIT
        if not is_implicit:
            await self._add_group(self.who, group)
        await self._commit_offsets(
            self.who, {where: entry}, GroupMetadata(group), implicit=is_implicit
        )

    async def _committed(self) -> Identity | None:
        deadline = asyncio.get_running_loop().time() + self._timeout
        is_implicit = self.version == IMPLICIT
        while True:
            try:
                return await self._end_transaction(self.who, commit=True, implicit=is_implicit)
            except KarrowError as error:
                is_over = asyncio.get_running_loop().time() >= deadline
                if is_over or not is_commit_retriable(error):
                    raise

    async def _is_ours_open(self) -> bool:
        """Whether our transaction is open for sure; raises if it is another driver's."""
        request = Request(
            "DescribeTransactions",
            self._to,
            lambda *_: {"transactional_ids": [self.transactional_id]},
        )
        try:
            state, holder = await self._call_alone(request, self._read_holder)
        except UnsupportedVersion:
            # Before 3.0: what checks the identity as well, and leaves a transaction open.
            await self._add_group(self.who, self.ledger.name)
            return True
        except KarrowError as error:
            if not isinstance(error, UNKNOWN):
                raise
            return False  # InitProducerId decides
        if state == ONGOING and holder != self.who:
            raise self._replaced()
        return state == ONGOING

    def _read_holder(self, reply: Reply) -> tuple[str, Identity]:
        context = reply.context("DescribeTransactions")
        for found in reply.message.transaction_states:
            if found.transactional_id == self.transactional_id:
                error = error_for(found.error_code, **context)
                if error is not None:
                    raise error
                holder = Identity(found.producer_id, found.producer_epoch)
                return found.transaction_state, holder
        raise RemoteProtocolError("the answer does not speak of the transactional id", **context)

    def _replaced(self) -> ProducerFenced:
        return ProducerFenced(
            f"another query, or another run of this one, has {self.transactional_id} now",
            hint="one sink_id is for one query; after a time-out of the transaction restart it",
        )


def _count(topic: str, found: TopicMetadata | None) -> int:
    if found is not None and found.partitions:
        return len(found.partitions)
    if found is not None and found.error is not None and not found.error.retriable:
        raise found.error
    raise ConfigError(f"topic {topic!r} does not exist", hint="create it first")


def _ids(topics: Mapping[str, TopicMetadata]) -> dict[str, UUID | None]:
    """Which topics have these names now."""
    return {name: topic.topic_id for name, topic in topics.items() if topic.partitions}


class BlockingTransaction:
    """The same without await, on the loop of this process."""

    def __init__(self, config: ProducerConfig, ledger: Ledger) -> None:
        self._client = pool.client(client_config(config))
        self._twin = SharedTransaction(self._client.twin, config, ledger)
        # The topics of the attempt, by their names; None where brokers have no ids yet.
        self._ids: dict[str, UUID | None] = {}
        # Topics that may be written to, as far as brokers tell.
        self._allowed: set[str] = set()

    @property
    def who(self) -> Identity:
        """Who writes now."""
        return self._twin.who

    @property
    def version(self) -> int:
        """Which kind of transactions the cluster has."""
        return self._twin.version

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions topics have now; raises for one that is not there to be written."""
        names = sorted(topics)
        self._twin.ledger.check_rows(names)
        said = self._client.metadata(names).topics
        counts = {name: _count(name, said.get(name)) for name in names}
        self._require(set(names) - self._allowed)
        self._ids = _ids(said)
        return counts

    def _require(self, topics: set[str]) -> None:
        if topics:
            asked = require_topics(self._client.twin, topics, AclOperation.WRITE)
            run(asked, "SharedTransaction")
            self._allowed |= topics

    def open(self) -> Entry | None:
        """Take the transactional id; gives the last batch that is committed."""
        self._ids = {}
        return run(self._twin.open(), "SharedTransaction")

    def store(self, entry: Entry) -> None:
        """Put the entry of a batch beside its rows; raises if topics are not what they were."""
        before, self._ids = self._ids, {}
        if before and _ids(self._client.metadata(before).topics) != before:
            raise StateError(
                f"{', '.join(before)}: deleted or made anew within the batch, and rows of it gone"
            )
        run(self._twin.store(entry), "SharedTransaction")

    def end(self) -> None:
        """Commit, and have a fresh identity after it; raises when that is not known to be done."""
        run(self._twin.end(), "SharedTransaction")

    def fence(self) -> Entry | None:
        """Abort what is open, so that nothing of it can follow; gives the last committed batch."""
        self._ids = {}
        return run(self._twin.fence(), "SharedTransaction")


def client_config(config: ProducerConfig) -> ClientConfig:
    """The part of a producer's options that every client has."""
    names = ClientConfig.describe()
    # A ledger is read from the leader: a replica that is nearer may not have its last entry yet.
    return ClientConfig(**{**{name: getattr(config, name) for name in names}, "rack": None})
