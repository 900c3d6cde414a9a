"""The client itself: asyncio, one loop, no thread."""
