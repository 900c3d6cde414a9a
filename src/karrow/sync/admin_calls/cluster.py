"""Blocking calls about the cluster, its topics, their partitions and configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from karrow.sync.admin_calls.base import AdminTwin

if TYPE_CHECKING:
    from karrow.aio.admin_calls.configs import Changes
    from karrow.aio.admin_calls.partitions import Election
    from karrow.aio.calls.offsets import Key
    from karrow.types import (
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        ElectionResult,
        NewPartitions,
        OffsetLike,
        TopicMetadata,
    )


class ClusterCalls(AdminTwin):
    """Calls about the cluster."""

    def describe_cluster(
        self,
        *,
        authorized_operations: bool = False,
        fenced: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> ClusterDescription:
        """The cluster's id, its controller and its brokers; with ``fenced`` also those kept out.

        With ``authorized_operations`` also what the caller may do to the cluster.
        """
        return self._run(
            self._twin.describe_cluster(
                authorized_operations=authorized_operations,
                fenced=fenced,
                api_version=api_version,
                retries=retries,
            )
        )

    def list_topics(
        self,
        *,
        internal: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> list[str]:
        """The names of all topics, in order; Kafka's own only with ``internal``."""
        return self._run(
            self._twin.list_topics(internal=internal, api_version=api_version, retries=retries)
        )

    def describe_topics(
        self,
        topics: Iterable[str],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[str, TopicMetadata]:
        """Ids, partitions, leaders and replicas of topics, by name."""
        return self._run(
            self._twin.describe_topics(topics, api_version=api_version, retries=retries)
        )

    def describe_topic(
        self,
        name: str,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> TopicMetadata:
        """A topic's id, partitions, leaders and replicas."""
        return self._run(self._twin.describe_topic(name, api_version=api_version, retries=retries))

    def create_partitions(
        self,
        topics: Mapping[str, int | NewPartitions],
        *,
        timeout: float | None = None,
        validate_only: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Let topics grow to so many partitions; keys then fall into other partitions than before.

        ``timeout`` is how long the broker may take, ``validate_only`` checks without creating.
        """
        return self._run(
            self._twin.create_partitions(
                topics,
                timeout=timeout,
                validate_only=validate_only,
                api_version=api_version,
                retries=retries,
            )
        )

    def delete_records(
        self,
        partitions: Mapping[Key, OffsetLike],
        *,
        timeout: float | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[Key, int]:
        """Delete the records before a place, and return the first offset left in each partition.

        A place is an offset, "latest" for everything, or a time: a datetime or an age like "-7d".
        """
        return self._run(
            self._twin.delete_records(
                partitions, timeout=timeout, api_version=api_version, retries=retries
            )
        )

    def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        kind: Election = "preferred",
        timeout: float | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> ElectionResult:
        """Give partitions back to their first replica, or with "unclean" to one not in sync.

        None is all partitions. An unclean election loses the records that only the old leader had.
        Where the leader is the right one already, the result holds ElectionNotNeeded.
        """
        return self._run(
            self._twin.elect_leaders(
                partitions, kind=kind, timeout=timeout, api_version=api_version, retries=retries
            )
        )

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The configurations of resources, all entries or those of some names.

        With ``synonyms`` an entry has what it would fall back to, with ``documentation`` its
        explanation.
        """
        return self._run(
            self._twin.describe_configs(
                resources,
                names,
                synonyms=synonyms,
                documentation=documentation,
                api_version=api_version,
                retries=retries,
            )
        )

    def describe_config(
        self,
        resource: ConfigResource,
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[str, ConfigEntry]:
        """The configuration of a topic, a broker or a group: all entries or those of some names."""
        return self._run(
            self._twin.describe_config(
                resource,
                names,
                synonyms=synonyms,
                documentation=documentation,
                api_version=api_version,
                retries=retries,
            )
        )

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Changes],
        *,
        validate_only: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Change configurations; what is not named stays as it is.

        Text or a Secret sets an entry, None takes it back to its default; ``ConfigChange.append``
        and ``ConfigChange.subtract`` change lists. ``validate_only`` checks without
        changing anything. ``api_version`` is IncrementalAlterConfigs'.
        """
        return self._run(
            self._twin.alter_configs(
                changes, validate_only=validate_only, api_version=api_version, retries=retries
            )
        )

    def alter_config(
        self,
        resource: ConfigResource,
        changes: Changes,
        *,
        validate_only: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Change the configuration of a topic, a broker or a group; the rest stays as it is.

        Text or a Secret sets an entry, None takes it back to its default.
        """
        return self._run(
            self._twin.alter_config(
                resource,
                changes,
                validate_only=validate_only,
                api_version=api_version,
                retries=retries,
            )
        )
