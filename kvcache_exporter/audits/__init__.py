"""The audits inside vLLM's engine processes, as seen from outside: found, asked, matched."""
