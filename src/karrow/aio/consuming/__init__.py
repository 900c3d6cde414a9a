"""What stands behind a consumer: where it is in its partitions, and how records come in."""
