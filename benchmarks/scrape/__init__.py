"""What a scrape costs: us, the engine, and the peers on the same targets."""
