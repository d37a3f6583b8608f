"""Basic authentication against bcrypt hashes, at a cost that an attacker cannot multiply."""

from __future__ import annotations

import asyncio
import binascii
import hashlib
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

MAX_WRONG = 100
BCRYPT_BYTES = 72
"""bcrypt looks no further; the Python package refuses what the Go one cuts."""

CheckPassword = Callable[[bytes, bytes], bool]


class Users:
    """Who may read our pages: names and bcrypt hashes, and the verdicts of late.

    A verification costs about 70 ms of CPU at bcrypt's usual cost. So verdicts are remembered,
    refusals too, and one is made at a time. An unknown name costs what a known one does, lest the
    time tell which names exist.
    """

    def __init__(self, hashes: Mapping[str, str], check: CheckPassword | None = None) -> None:
        self._hashes = {name: value.encode() for name, value in hashes.items()}
        self._check = check or (_bcrypt() if hashes else lambda password, hashed: False)
        # Apart, so that a flood of wrong passwords cannot displace the right ones.
        self._right: set[bytes] = set()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "web-auth")

    async def may(self, headers: Mapping[str, str]) -> bool:
        """Whether a request with these headers comes from a user; True where there are none."""
        if not self._hashes:
            return True
        pair = credentials(headers.get("authorization", ""))
        if pair is None:
            return False
        name, password = pair
        hashed = self._hashes.get(name)
        decoy = hashed or next(iter(self._hashes.values()))
        verdict = await self._verify(name.encode(), decoy, password[:BCRYPT_BYTES])
        return verdict and hashed is not None

    def close(self) -> None:
        """Let go of the thread; a verification under way is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _verify(self, name: bytes, hashed: bytes, password: bytes) -> bool:
        key = digest(name, hashed, password)
        if (verdict := self._remembered(key)) is not None:
            return verdict
        async with self._one_at_a_time:
            # While waiting, another request may have had the same one verified.
            if (verdict := self._remembered(key)) is None:
                loop = asyncio.get_running_loop()
                verdict = await loop.run_in_executor(self._thread, self._check, password, hashed)
                self._remember(key, verdict)
            return verdict

    def _remembered(self, key: bytes) -> bool | None:
        if key in self._right:
            return True
        return False if key in self._wrong else None

    def _remember(self, key: bytes, verdict: bool) -> None:
        if verdict:
            self._right.add(key)
            return
        self._wrong[key] = None
        while len(self._wrong) > MAX_WRONG:
            self._wrong.popitem(last=False)


def credentials(header: str) -> tuple[str, bytes] | None:
    """Return name and password of a Basic Authorization header, or None."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = b64decode(token.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def digest(*parts: bytes) -> bytes:
    """Hash parts so that no two lists of parts collide.

    Joined without their lengths, the hash of one user could stand in for a password of another
    (CVE-2022-46146).
    """
    sha256 = hashlib.sha256()
    for part in parts:
        sha256.update(len(part).to_bytes(8, "big"))
        sha256.update(part)
    return sha256.digest()


def _bcrypt() -> CheckPassword:
    import bcrypt

    def check(password: bytes, hashed: bytes) -> bool:
        try:
            return bcrypt.checkpw(password, hashed)
        except ValueError:  # a NUL in the password, or a salt that bcrypt does not like
            return False

    return check
