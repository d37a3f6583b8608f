"""A file here is a dashboard: it has a function `board(thresholds)`."""
