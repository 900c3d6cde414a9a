"""Pipelines: sources, steps and sinks as a file, checked, run and watched as one thing."""

from __future__ import annotations

from karrow.spark.pipeline.pipeline import Pipeline
from karrow.spark.pipeline.running import PipelineFailed, Running

__all__ = ["Pipeline", "PipelineFailed", "Running"]
