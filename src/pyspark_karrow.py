"""Spark imports every top-level ``pyspark_*`` module: karrow's data source registers itself here.

Nothing may fail here: Spark asks for these modules whatever the program is about.
"""

import contextlib

with contextlib.suppress(Exception):
    from karrow.spark.data_source import KarrowDataSource as DefaultSource  # noqa: F401
