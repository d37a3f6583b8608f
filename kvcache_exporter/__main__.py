"""``python -m kvcache_exporter`` is the command."""

from kvcache_exporter.cli import main

main(prog_name="kvcache-exporter")
