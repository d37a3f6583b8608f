"""The exporter does not leak, whatever comes and goes; ``benchmarks.endurance`` runs it longer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.endurance import real, virtual
from benchmarks.endurance.measure import LIMITS, Look, growths, leaks, report

FLAT = [Look(float(hour), 85.0, 12.0, 1.0, 400.0, 87_000.0) for hour in range(72)]


def test_half_a_day_of_faults_leaves_nothing_behind() -> None:
    looks, _ = virtual.soak(hours=12, targets=4, interval_seconds=600)
    assert len(looks) == 12
    assert not leaks(looks), report(looks)


@pytest.mark.slow
def test_the_real_process_keeps_its_promises_among_hostile_servers() -> None:
    lived = real.soak(seconds=60)
    assert [promise for promise, kept in lived.verdicts.items() if not kept] == [], str(lived)


@pytest.mark.parametrize("measure", LIMITS)
def test_whatever_grows_hour_by_hour_is_called_a_leak(measure: str) -> None:
    looks = [
        replace(look, **{measure: getattr(look, measure) * (1 + look.hours / 100) + look.hours / 5})
        for look in FLAT
    ]
    assert leaks(looks)
    assert [name for name, (_, _, grew) in growths(looks).items() if grew] == [measure]
    assert report(looks).count("GROWS") == 1


def test_what_only_warms_up_is_no_leak() -> None:
    looks = [replace(look, resident_mib=85.0 + min(look.hours, 24.0)) for look in FLAT]
    assert not leaks(looks)
