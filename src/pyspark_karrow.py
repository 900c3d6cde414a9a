"""Spark imports every top-level ``pyspark_*`` module: karrow's data source will register here."""
