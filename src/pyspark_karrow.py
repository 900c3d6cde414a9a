"""Spark imports every top-level ``pyspark_*`` module it finds; karrow's data source registers here."""
