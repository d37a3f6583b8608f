"""Engines whose pages can be read: a file here without a leading underscore is an engine.

Such a module has ``NAMES`` (sample names of interest, without prefix), ``PLAIN`` (names taken as
they are), ``read(samples, memory, configured_blocks) -> (TargetReading, memory)`` and
``absence(body) -> Problem`` for a page on which it finds nothing.
"""
