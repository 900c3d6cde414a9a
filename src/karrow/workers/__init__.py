"""Handlers of records: one for each partition, supervised, over a consumer of this process."""
