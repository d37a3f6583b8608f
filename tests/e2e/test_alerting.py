"""From a lost block to the pager and back, with the real Prometheus and Alertmanager."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from stack import Stack, wait_until

LEAK = "KVCacheLeakProven"


@pytest.fixture
def stack(tmp_path: Path, request: pytest.FixtureRequest):
    with Stack(tmp_path, getattr(request, "param", {})) as running:
        yield running


def wait_for_the_page(stack):
    wait_until(lambda: stack.receivers.paged("trigger", LEAK), "the leak pages")
    return stack.receivers.pages[0]


def nobody_was_told_of_the_healthy_engine(receivers):
    assert "llm-fine" not in str(receivers.pages) + str(receivers.tickets)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_leak_pages_once_over_a_crash_of_prometheus_and_resolves_after_the_restart(stack):
    page = wait_for_the_page(stack)
    assert page["payload"]["summary"].startswith(
        f"[FIRING] {LEAK} qwen2.5-7b llm-leaky/0 on test: A large share of the KV cache is lost"
    )
    text = page["payload"]["custom_details"]["alerts"]
    assert "Engine 0 of llm-leaky (qwen2.5-7b) has lost at least" in text
    assert "of 4096 blocks" in text
    assert "leak.md#kvcacheleakproven" in text
    assert "unknown blocks" not in text

    stack.kill("prometheus")
    stack.start("prometheus")
    wait_until(lambda: LEAK in stack.firing(), "Prometheus remembers that it fired")
    assert not stack.receivers.paged("resolve", LEAK)

    stack.fleet.restart_without_leak("llm-leaky")
    wait_until(lambda: stack.receivers.paged("resolve", LEAK), "the page resolves")
    assert stack.receivers.paged("resolve", LEAK)[0]["dedup_key"] == page["dedup_key"]
    wait_until(lambda: not stack.firing(), "nothing fires any more")
    assert len(stack.receivers.pages) == 2, "one page, opened and closed"
    nobody_was_told_of_the_healthy_engine(stack.receivers)


LONGER = {"leak_keep_firing": "2h"}
"""48 s at this speed: an exporter that lost its memory must prove the leak anew meanwhile."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stack", [LONGER], indirect=True, ids=["patient"])
def test_what_dies_is_told_and_never_ends_or_repeats_the_page_of_a_leak(stack):
    receivers = stack.receivers
    wait_for_the_page(stack)

    stack.kill("exporter")
    wait_until(lambda: receivers.ticketed("KVCacheExporterDown"), "its death is a ticket")
    wait_until(lambda: receivers.paged("trigger", "KVCacheExporterAbsent"), "then pages")
    stack.start("exporter")
    wait_until(lambda: receivers.paged("resolve", "KVCacheExporterAbsent"), "back again")
    wait_until(lambda: stack.sees("kvcache_orphaned_blocks_low > 0"), "the leak is found again")
    settle(stack)
    assert not receivers.paged("resolve", LEAK), "nobody said that the leak is over"
    assert len(receivers.paged("trigger", LEAK)) == 1, "nor was anybody paged again"

    stack.fleet.kill("llm-leaky")
    wait_until(lambda: receivers.ticketed("KVCacheTargetDown"), "the engine's death is a ticket")
    settle(stack)
    assert "llm-leaky gives no metrics page (connection_refused)" in str(receivers.tickets)
    assert not receivers.paged("resolve", LEAK), "a dead engine is no healthy engine"
    nobody_was_told_of_the_healthy_engine(receivers)


def settle(stack):
    """Wait for what may follow: rules and Alertmanager look once a second."""
    time.sleep(3)
    assert stack.firing()
