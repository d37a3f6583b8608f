"""Measurements of the exporter; scripts for people, no part of the package."""
