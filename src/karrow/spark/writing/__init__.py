"""The sink: rows of DataFrames into topics."""
