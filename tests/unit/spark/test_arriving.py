"""What comes to Spark's workers, and what a worker without karrow says."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import BinaryType, StructField, StructType

from karrow.aio.producing.coordinator_calls import Identity
from karrow.records._hash import partition_for
from karrow.spark.data_source import KarrowDataSource
from karrow.spark.exactly import routing, task
from karrow.spark.exactly.settings import Settings
from karrow.spark.exactly.sink import exactly_once
from karrow.spark.reading.batch import BatchReader, FilteredReader, batch_reader
from karrow.spark.reading.pushdown import Bounds
from karrow.spark.reading.stream import StreamReader
from karrow.spark.writing.batch import BatchWriter
from karrow.spark.writing.sink import Writer, in_task
from karrow.spark.writing.stream import StreamWriter

OPTIONS = {
    "kafka.bootstrap.servers": "b1:9092",
    "subscribe": "orders",
    "kafka.ssl.key.password": "hunter2",
}
# What Spark pickles with.
cloud_dumps: Callable[[object], bytes] = CloudPickleSerializer().dumps
# Spark's own modules, and no others: neither karrow nor what is installed beside it.
WITHOUT_KARROW = """
import sys
sys.path[:0] = {paths!r}
from pyspark import cloudpickle
made = cloudpickle.loads(sys.stdin.buffer.read())
list(made())
"""


@pytest.mark.parametrize("dumps", [pickle.dumps, cloud_dumps])
def test_readers_arrive(dumps: Callable[[object], bytes]) -> None:
    for made in (BatchReader(OPTIONS), StreamReader(OPTIONS), KarrowDataSource(OPTIONS)):
        again = pickle.loads(dumps(made))
        assert type(again) is type(made)
        assert "hunter2" not in repr(again)


def test_filters_arrive_too() -> None:
    made = batch_reader({**OPTIONS, "pushdown": "true"})
    made._bounds = Bounds(first=7)
    again = pickle.loads(cloud_dumps(made))
    assert isinstance(again, FilteredReader)
    assert again._bounds == Bounds(first=7)


def writers() -> list[Writer]:
    """Writers as they are when everything about them was checked."""
    schema = StructType([StructField("value", BinaryType())])
    options = {"kafka.bootstrap.servers": "b1:9092", "topic": "orders"}
    kinds: list[type[Writer]] = [BatchWriter, StreamWriter]
    return [in_task((kind.__module__, kind.__name__, options, schema)) for kind in kinds]


def test_writers_arrive() -> None:
    for made in writers():
        again = pickle.loads(cloud_dumps(made))
        assert type(again) is type(made)
        assert again._sink.terms().topic == "orders"


def of_exactly_once() -> list[Callable[..., Any]]:
    """What tasks of karrow.spark.exactly_once run: the writer, and before it the partitioner."""
    settings = Settings("b1:9092", "sink", {})
    write = task.writer(settings, "orders", 0, Identity(1, 0), 2)
    return [write, routing.travelling("murmur2")]


def test_tasks_of_exactly_once_arrive() -> None:
    write, partitions = (pickle.loads(cloud_dumps(made)) for made in of_exactly_once())
    assert callable(write)
    keys, counts = pa.array([b"a", None]), pa.array([3, 3], pa.int32())
    assert partitions(keys, counts).to_pylist() == [partition_for(b"a", 3), None]


@pytest.mark.parametrize(
    "made",
    [
        BatchReader(OPTIONS),
        StreamReader(OPTIONS),
        KarrowDataSource(OPTIONS),
        *writers(),
        functools.partial(of_exactly_once()[0], None),
        functools.partial(of_exactly_once()[1], None, None),
    ],
)
def test_a_worker_without_karrow_says_so(made: object, tmp_path: Path) -> None:
    folder = Path(pyspark.__file__).parent
    (tmp_path / "pyspark").symlink_to(folder)
    paths = [str(tmp_path), *map(str, (folder / "python" / "lib").glob("py4j-*.zip"))]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WITHOUT_KARROW.format(paths=paths)],
        input=cloud_dumps(made),
        capture_output=True,
        check=False,
    )
    last = done.stderr.decode().strip().splitlines()[-1]
    assert last.startswith("RuntimeError: karrow cannot be imported by the Python of this Spark")
    assert sys.executable in last
    assert "No module named 'karrow'" in last


def test_function_for_each_batch_stays_where_it_was_made() -> None:
    """Spark Connect would run it elsewhere; whoever tries hears what to use there."""
    sink = exactly_once("b1:9092", "totals", sink_id="totals")
    with pytest.raises(Exception, match=r"not Spark Connect.*delivery=exactly-once"):
        cloud_dumps(sink)
