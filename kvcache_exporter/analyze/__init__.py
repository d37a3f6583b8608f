"""The judge on the past: recordings, tables, logs and Prometheus ranges become the same samples.

Each input is a module with a function that yields ``Frame`` values in order of time; ``replay``
turns frames into a report. Nothing here knows a state or a threshold of its own.
"""

from kvcache_exporter.analyze.frame import Frame, InputError
from kvcache_exporter.analyze.replay import replay
from kvcache_exporter.analyze.report import Report

__all__ = ["Frame", "InputError", "Report", "replay"]
