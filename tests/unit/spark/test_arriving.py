"""What comes to Spark's workers, and what a worker without karrow says."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark.serializers import CloudPickleSerializer

from karrow.spark.data_source import KarrowDataSource
from karrow.spark.reading.batch import BatchReader, FilteredReader, batch_reader
from karrow.spark.reading.pushdown import Bounds
from karrow.spark.reading.stream import StreamReader

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
cloudpickle.loads(sys.stdin.buffer.read())
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


@pytest.mark.parametrize(
    "made", [BatchReader(OPTIONS), StreamReader(OPTIONS), KarrowDataSource(OPTIONS)]
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
