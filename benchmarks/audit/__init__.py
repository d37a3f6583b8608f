"""What the audit costs the engine that it runs in; ``python -m benchmarks.audit`` writes the table.

Measured on objects shaped like vLLM's, with every block of the pool held by 256 requests: the worst
case, since only blocks that somebody holds are copied.
"""
