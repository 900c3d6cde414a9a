"""What stands behind a producer: batches on their way, whose they are, what becomes of them."""
