"""Kafka as a source and a sink of PySpark, without a JAR."""
