"""Each micro-batch exactly once in Kafka: its rows and a note of it in one transaction."""
