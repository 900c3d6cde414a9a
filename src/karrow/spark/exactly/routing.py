"""Which partition, and which task, each row of a batch goes to.

Rules:
- Where a row goes follows from the row alone, whenever it is computed: a column ``partition``, else
  the key by the partitioner (Java's, unless told otherwise), else a hash of the value.
- All rows of a partition go to one task; tasks share the partitions evenly.
- The numbers of partitions are those that the driver has read for this attempt. A topic that grows
  meanwhile is used to its full width by the next batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import IntegerType

from karrow.records._hash import partition_column
from karrow.spark.arriving import arrive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame

# What an error about a row begins with, so that it is found in what Spark makes of it.
BAD_ROW = "karrow.spark.exactly_once: "


def routed(
    frame: DataFrame, topic: str | None, counts: Mapping[str, int], tasks: int, partitioner: str
) -> DataFrame:
    """The rows with their partition, in ``tasks`` parts; ``counts`` are partitions by topic."""
    has = set(frame.columns)
    name = sf.lit(topic) if topic is not None else sf.col("topic")
    columns = [sf.col(one).cast("binary").alias(one) for one in ("key", "value") if one in has]
    if "headers" in has:
        columns.append(sf.col("headers"))
    if topic is None:
        columns.append(_known_topic(counts).alias("topic"))
    columns.append(_partition(has, name, counts, partitioner).alias("partition"))
    first = _number(name, _firsts(counts))
    return frame.select(*columns).repartitionById(
        tasks, sf.pmod(first + sf.col("partition"), sf.lit(tasks)).cast("int")
    )


def _known_topic(counts: Mapping[str, int]) -> Column:
    topic = sf.col("topic")
    error = sf.concat(
        sf.lit(BAD_ROW + "column 'topic' is "),
        sf.coalesce(topic, sf.lit("null")),
        sf.lit(", and there is no such topic"),
    )
    return sf.when(topic.isin(list(counts)), topic).otherwise(sf.raise_error(error).cast("string"))


def _partition(has: set[str], topic: Column, counts: Mapping[str, int], partitioner: str) -> Column:
    count = _number(topic, counts)
    chosen = sf.pmod(sf.xxhash64(sf.col("value")), count).cast("int")
    if "key" in has:
        by_key = _partitioned(partitioner)(sf.col("key").cast("binary"), count)
        chosen = sf.coalesce(by_key, chosen)
    if "partition" not in has:
        return chosen
    wanted = sf.col("partition")
    error = sf.format_string(
        BAD_ROW + "column 'partition' is %d, and %s has partitions 0 to %d",
        wanted,
        topic,
        count - 1,
    )
    is_there = (wanted >= 0) & (wanted < count)
    checked = sf.when(is_there, wanted).otherwise(sf.raise_error(error).cast("int"))
    return sf.when(wanted.isNull(), chosen).otherwise(checked)


def _number(topic: Column, numbers: Mapping[str, int]) -> Column:
    """A number that each topic has."""
    if len(numbers) == 1:
        return sf.lit(next(iter(numbers.values())))
    pairs = [sf.lit(item) for pair in numbers.items() for item in pair]
    return sf.element_at(sf.create_map(*pairs), topic)


def _firsts(counts: Mapping[str, int]) -> dict[str, int]:
    """Where a topic's partitions begin when those of all topics are counted through."""
    firsts, first = {}, 0
    for topic in sorted(counts):
        firsts[topic] = first
        first += counts[topic]
    return firsts


def _partitioned(partitioner: str) -> Callable[..., Column]:
    """The partitioner as a function of Spark's columns: the key and the number of partitions."""
    made: Callable[..., Column] = arrow_udf(  # type: ignore[call-overload]
        travelling(partitioner), IntegerType()
    )
    return made


def travelling(partitioner: str) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """The partitioner as Spark sends it to tasks."""
    # Pickled with its code, as everything that comes to tasks: see arriving.py.
    home, name = __name__, in_task.__name__

    def partitions(keys: pa.Array, counts: pa.Array) -> pa.Array:
        found: pa.Array = arrive(home, name, partitioner)(keys, counts)
        return found

    return partitions


def in_task(partitioner: str) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """The partitioner where rows are."""
    return lambda keys, counts: partitions_of(keys, counts, partitioner)


def partitions_of(keys: pa.Array, counts: pa.Array, partitioner: str) -> pa.Array:
    """The partition of each key; null for a null key."""
    found = pa.nulls(len(keys), pa.int32())
    for count in pc.unique(counts).to_pylist():  # type: ignore[attr-defined]
        if count is not None:
            of_count = pa.array(partition_column(keys, count, partitioner))
            is_meant = pc.equal(counts, count)
            found = pc.if_else(is_meant, of_count, found)  # type: ignore[attr-defined]
    return found
