"""The blocking face: thin typed twins of the Async classes, over one background loop."""
