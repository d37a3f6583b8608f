"""A paged-KV engine on a virtual clock that prints vLLM's own pages: for the demo and the tests."""
