"""A rehearsal before production: press a server within bounds, watch it, drain, judge three things.

``profiles`` makes prompts up, ``driver`` sends them, ``watch`` looks at the engine meanwhile,
``judge`` says go or no-go, ``report`` and ``html`` tell it. Nothing is kept but numbers.
"""
