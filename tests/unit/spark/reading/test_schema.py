"""The columns that Spark gets."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from karrow import records
from karrow.errors import ConfigError
from karrow.spark.reading.schema import Columns, check_schema, source_schema


def decoded(columns: Columns, *batches: bytes) -> pa.RecordBatch:
    reader = records.RecordReader(b"".join(batches), topic="orders", partition=3)
    found = reader.read_arrow(columns=columns.names, timestamp_unit="us")
    return columns.batch(found, 1 << 60)


def test_records_without_headers_have_null_there() -> None:
    builder = records.BatchBuilder()
    for headers in ((), [("a", b"1"), ("a", None)], ()):
        builder.append(None, b"value", headers=headers)
    batch = decoded(Columns(with_headers=True), builder.build())
    assert batch.column(7).to_pylist() == [
        None,
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
    ]


@pytest.mark.parametrize("with_headers", [True, False])
def test_workers_import_little(with_headers: bool) -> None:
    """Pandas would take longer than everything else that a new worker does."""
    program = f"""
import sys
from karrow import records
from karrow.spark.reading import batch, stream
from karrow.spark.reading.schema import Columns
builder = records.BatchBuilder()
builder.append(None, b"value")
columns = Columns(with_headers={with_headers})
reader = records.RecordReader(builder.build(), topic="orders", partition=3)
columns.batch(reader.read_arrow(columns=columns.names, timestamp_unit="us"), 1 << 60)
assert "pandas" not in sys.modules
assert {with_headers} or "pyarrow.compute" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_columns_that_somebody_made_up_are_refused() -> None:
    check_schema(source_schema({}), {})
    check_schema(source_schema({"includeHeaders": "true"}), {"includeHeaders": "true"})
    for given in (
        source_schema({"includeHeaders": "true"}),
        StructType().add("value", "string"),
        StructType(),
    ):
        with pytest.raises(ConfigError, match="columns of its own: key, value, topic, partition"):
            check_schema(given, {})
