"""What survives a restart of the exporter: the judges, as plain values, in one checked file."""
