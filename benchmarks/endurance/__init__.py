"""Whether the exporter itself leaks: days of faults that come and go, virtual and real ones."""
