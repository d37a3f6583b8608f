"""From memory and indications to a verdict: `Judge` is one engine's."""

from kvcache_exporter.judge.judge import Judge

__all__ = ["Judge"]
