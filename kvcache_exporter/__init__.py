"""See inside vLLM's KV cache from the outside: exact block counts, leak verdicts, GPU memory."""

__version__ = "0.1.0"
