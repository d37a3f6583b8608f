"""An audit inside vLLM's engine process: whose block is it, and which blocks are nobody's.

From outside, a busy engine's orphaned blocks are an estimate; in here they are a count. vLLM loads
this through its ``vllm.general_plugins`` entry points. It imports nothing but the standard library,
and vLLM only when vLLM calls it. It never raises into vLLM: where the engine's insides are not what
is expected it says "unsupported" and why, and the engine goes on as if nothing were there.

``KVCACHE_AUDIT=0`` switches it off. ``KVCACHE_AUDIT_LISTEN=HOST:PORT`` serves on TCP (the engine's
rank is added to the port) instead of a socket that only this host's processes can reach.
"""

from __future__ import annotations

import logging
import os

log = logging.getLogger(__name__)


def register() -> None:
    """Patch the scheduler class of this process; called by vLLM, in any of its processes.

    Only classes are patched here. Threads start in the engine process when it makes its first step,
    because a process that was forked after this call would not have them.
    """
    if os.environ.get("KVCACHE_AUDIT", "1") in ("0", "off", "false"):
        return
    from kvcache_exporter.vllm_plugin.hooks import patch

    try:
        patch()
    except Exception as error:  # vLLM does not catch what a plugin raises, and would not start
        log.warning("kvcache audit: nothing is audited, vLLM is not as expected: %r", error)
