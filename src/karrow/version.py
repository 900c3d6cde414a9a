"""The version, where every room may read it without importing the rooms above."""

__version__ = "0.1.0"
