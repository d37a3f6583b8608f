"""A folder here is a dashboard with a function `board(thresholds)`; a file in it is a section."""
