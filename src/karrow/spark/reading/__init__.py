"""Kafka as a source of Spark: what the options choose, how it is divided, and how tasks read it."""
