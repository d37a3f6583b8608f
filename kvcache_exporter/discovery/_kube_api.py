"""The two calls of the Kubernetes API that are needed: list pods, watch pods.

Written by hand: the official client brings 26 packages and 163 MB, and its watch gives up where
this one lists anew. Credentials are a service account's files, read again for every request, for
the token is rotated hourly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from kvcache_exporter.discovery._hang_up import hang_up

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE_LIMIT = 250
WATCH_SECONDS = 240
"""Time after which the server ends a watch."""
WATCH_GRACE_SECONDS = 10.0
"""One that is silent for so much longer is dead."""
MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Four times what etcd can store of one pod."""
GONE = 410

Pods = Sequence[Mapping[str, Any]]


class ApiError(Exception):
    """The API refused or broke off; ``status`` None = no answer."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Event:
    """One change; kind is ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    pod: Mapping[str, Any]
    version: str


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list; the version of the last one is the one to watch from."""

    pods: Pods
    version: str
    more: str
    """Token to ask for the next page with; empty = this is the last."""


class Watch:
    """Changes as the server tells them, until it ends the watch or somebody hangs up."""

    def __init__(self, response: requests.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[Event]:
        """Yield changes; raise ApiError, with 410 where the history is gone."""
        try:
            yield from map(_event, self._lines())
        except (requests.RequestException, OSError, ValueError, AttributeError) as error:
            raise ApiError(f"the watch broke off: {type(error).__name__}") from None

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._response.iter_content(chunk_size=None):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from filter(bytes.strip, lines)
            if len(rest) > MAX_EVENT_BYTES:
                raise ApiError(f"an event of the watch is larger than {MAX_EVENT_BYTES} bytes")

    def hang_up(self) -> None:
        """Break it off from another thread, so that whoever waits for a change stops waiting."""
        hang_up(self._response)

    def close(self) -> None:
        """Let go of the connection."""
        self._response.close()


@dataclass(frozen=True, slots=True)
class Api:
    """One API server as one service account sees it."""

    url: str
    folder: Path | None = SERVICE_ACCOUNT
    """Where its ``token`` and ``ca.crt`` are; None for ``kubectl proxy``, which has its own."""

    @classmethod
    def in_cluster(cls) -> Api | None:
        """Return the server of the cluster that this pod runs in, or None outside of one."""
        host, port = (
            os.environ.get("KUBERNETES_SERVICE_HOST"),
            os.environ.get("KUBERNETES_SERVICE_PORT"),
        )
        if not host or not port:
            return None
        return cls(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")

    def list_pods(self, path: str, parameters: Mapping[str, str], cached: bool) -> Iterator[Page]:
        """Yield all pages of a list.

        *cached* spares etcd, may be a little old, and comes in one page however long it is.
        """
        start = {"resourceVersion": "0"} if cached else {}
        while True:
            query = {**parameters, "limit": str(PAGE_LIMIT), **start}
            with closing(self._get(path, query, 30.0)) as response:
                page = _page(response)
            yield page
            if not page.more:
                return
            start = {"continue": page.more}

    def watch_pods(self, path: str, parameters: Mapping[str, str], version: str) -> Watch:
        """Ask for changes since *version*; raise ApiError, with 410 for too old."""
        query = {
            **parameters,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        return Watch(self._get(path, query, WATCH_SECONDS + WATCH_GRACE_SECONDS, stream=True))

    def _get(
        self, path: str, query: Mapping[str, str], timeout_seconds: float, stream: bool = False
    ) -> requests.Response:
        headers = {"Accept": "application/json"}
        verify: str | bool = True
        if self.folder is not None:
            headers["Authorization"] = f"Bearer {_token(self.folder)}"
            ca = self.folder / "ca.crt"
            verify = str(ca) if ca.exists() else True
        try:
            response = requests.get(
                self.url + path,
                params=dict(query),
                headers=headers,
                verify=verify,
                timeout=(5.0, timeout_seconds),
                allow_redirects=False,
                stream=stream,
            )
        except OSError as error:  # files and the network alike; RequestException is one
            text = f"cannot reach the API server: {type(error).__name__}"
            raise ApiError(text) from None
        if response.status_code != 200:
            status = response.status_code
            response.close()
            raise ApiError(_ADVICE.get(status, f"the API server answered {status}"), status)
        return response


def _token(folder: Path) -> str:
    path = folder / "token"
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        text = f"{path} cannot be read: let the pod have its token"
        raise ApiError(f"{text} (automountServiceAccountToken: true)") from None


def _page(response: requests.Response) -> Page:
    """Read one page; an answer that is no list must not look like an empty one."""
    try:
        data = response.json()
        pods, meta = data["items"] or (), data["metadata"]
        if isinstance(pods, Sequence) and meta["resourceVersion"]:
            return Page(pods, str(meta["resourceVersion"]), str(meta.get("continue") or ""))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    raise ApiError("the API server's answer is no list of pods")


def _event(line: bytes) -> Event:
    data = json.loads(line)
    kind, pod = str(data.get("type")), data.get("object") or {}
    if kind == "ERROR":
        code = pod.get("code")
        raise ApiError(f"the watch reports an error: {code} {pod.get('reason', '')}".rstrip(), code)
    return Event(kind, pod, str((pod.get("metadata") or {}).get("resourceVersion") or ""))


_ADVICE = {
    401: "the API server refuses our token: is the service account's token mounted and fresh?",
    403: "the service account may not list pods: grant it pods get, list, watch as deploy/k8s does",
}
