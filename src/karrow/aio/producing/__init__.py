"""What stands behind a producer: batches on their way, who they are from, and what became of them."""
