"""Blocking calls about transactions and producers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from karrow.sync.admin_calls.base import AdminTwin

if TYPE_CHECKING:
    from karrow.aio.calls.offsets import Key
    from karrow.types import ProducerState, TransactionDescription, TransactionListing


class TransactionCalls(AdminTwin):
    """Calls about transactions."""

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        min_age: float | None = None,
        pattern: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that the brokers know, with the states of their transactions.

        ``states`` are Kafka's names, such as "Ongoing"; ``min_age`` is in seconds; ``pattern`` is
        a regular expression (RE2) over whole ids.
        """
        return self._run(
            self._twin.list_transactions(
                states=states,
                producer_ids=producer_ids,
                min_age=min_age,
                pattern=pattern,
                api_version=api_version,
                retries=retries,
            )
        )

    def describe_transactions(
        self,
        transactional_ids: Iterable[str],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[str, TransactionDescription]:
        """States, producers and partitions of transactions, by transactional id."""
        return self._run(
            self._twin.describe_transactions(
                transactional_ids, api_version=api_version, retries=retries
            )
        )

    def describe_transaction(
        self,
        transactional_id: str,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> TransactionDescription:
        """The state, the producer and the partitions of a transaction."""
        return self._run(
            self._twin.describe_transaction(
                transactional_id, api_version=api_version, retries=retries
            )
        )

    def describe_producers(
        self,
        partitions: Iterable[Key],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[Key, tuple[ProducerState, ...]]:
        """The idempotent and transactional producers that partitions' leaders remember."""
        return self._run(
            self._twin.describe_producers(partitions, api_version=api_version, retries=retries)
        )

    def abort_transaction(
        self,
        topic: str,
        partition: int,
        producer: ProducerState,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """End a transaction that hangs in a partition because its coordinator has forgotten it.

        ``producer`` is what ``describe_producers`` says of it. Aborting a transaction that its
        coordinator still knows breaks it: let its producer or its time-out end that one.
        """
        return self._run(
            self._twin.abort_transaction(
                topic, partition, producer, api_version=api_version, retries=retries
            )
        )
