"""The two calls of the Kubernetes API that are needed: list pods, watch pods.

Written by hand: the official client brings 26 packages and 163 MB, and its watch gives up where
this one lists anew. Credentials are a service account's files, read again for every request, for
the token is rotated hourly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PAGE_LIMIT = 500
WATCH_SECONDS = 240
"""Time after which the server ends a watch; the client waits a little longer for a dead link."""
MAX_EVENT_BYTES = 8 * 1024 * 1024


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
class Api:
    """One API server as one service account sees it."""

    url: str
    folder: Path = SERVICE_ACCOUNT

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

    def list_pods(
        self, path: str, parameters: Mapping[str, str]
    ) -> tuple[list[Mapping[str, Any]], str]:
        """Return all pods, page by page, and the resource version to watch from."""
        items: list[Mapping[str, Any]] = []
        token = ""
        while True:
            query = {**parameters, "limit": str(PAGE_LIMIT)}
            query |= {"continue": token} if token else {"resourceVersion": "0"}
            with closing(self._get(path, query, 30.0)) as response:
                page = self._json(response)
            items += page.get("items") or ()
            meta = page.get("metadata") or {}
            token = meta.get("continue") or ""
            if not token:
                return items, str(meta.get("resourceVersion") or "")

    def watch_pods(self, path: str, parameters: Mapping[str, str], version: str) -> Iterator[Event]:
        """Yield changes until the server ends the watch; raise ApiError, with 410 for too old."""
        query = {
            **parameters,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        with closing(self._get(path, query, WATCH_SECONDS + 10.0, stream=True)) as response:
            try:
                for line in response.iter_lines(chunk_size=None):
                    if line:
                        yield _event(line)
            except (requests.RequestException, ValueError, AttributeError) as error:
                raise ApiError(f"the watch broke off: {type(error).__name__}") from None

    def _get(
        self, path: str, query: Mapping[str, str], timeout_seconds: float, stream: bool = False
    ) -> requests.Response:
        try:
            token = (self.folder / "token").read_text(encoding="ascii").strip()
            ca = self.folder / "ca.crt"
            response = requests.get(
                self.url + path,
                params=dict(query),
                headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
                verify=str(ca) if ca.exists() else True,
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

    @staticmethod
    def _json(response: requests.Response) -> Mapping[str, Any]:
        try:
            data = response.json()
        except (ValueError, RecursionError, requests.RequestException):
            raise ApiError("the API server's answer is no JSON") from None
        return data if isinstance(data, dict) else {}


def _event(line: bytes) -> Event:
    if len(line) > MAX_EVENT_BYTES:
        raise ApiError("an event of the watch is too large")
    data = json.loads(line)
    kind, pod = str(data.get("type")), data.get("object") or {}
    if kind == "ERROR":
        raise ApiError("the watch reports an error", pod.get("code"))
    return Event(kind, pod, str((pod.get("metadata") or {}).get("resourceVersion") or ""))


_ADVICE = {
    401: "the API server refuses our token: is the service account's token mounted and fresh?",
    403: "the service account may not list pods: grant it pods get, list, watch as deploy/k8s does",
}
