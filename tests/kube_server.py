"""A Kubernetes API server of a few calls: pod lists in pages, watches, and every refusal."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]


def pod(
    name: str,
    address: str = "127.0.0.1",
    *,
    namespace: str = "prod",
    node: str = "node-a",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    ports: list[tuple[str, int]] | None = None,
    phase: str = "Running",
    uid: str = "",
    deleting: bool = False,
    ready: bool = True,
) -> Json:
    """Make a pod as the API prints it."""
    meta: Json = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{namespace}-{name}",
        "labels": {"app": "vllm"} if labels is None else labels,
        "annotations": annotations or {},
    }
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    listed = [{"name": n, "containerPort": p} for n, p in ports or [("http", 8000)]]
    return {
        "metadata": meta,
        "spec": {"nodeName": node, "containers": [{"name": "main", "ports": listed}]},
        "status": {
            "phase": phase,
            "podIP": address,
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


@dataclass
class Cluster:
    """State of the fake API; tests change it and then call ``changed``."""

    pods: dict[str, Json] = field(default_factory=dict)
    token: str = "first"
    """Empty = it needs none, as kubectl proxy."""
    forbid: bool = False
    version: int = 1
    oldest: int = 0
    """Watches from before this version get a 410."""
    drop_watches: bool = False
    """End watches in the middle of a line."""
    end_watches: bool = False
    """End them in order, but at once."""
    dead_watches: bool = False
    """Let watches neither send nor end, as behind a NAT that has forgotten them."""
    nonsense: bytes = b""
    """Answer lists with this."""
    huge_event: bool = False
    """Send an event that never ends."""
    lists: int = 0
    watches: int = 0
    queries: list[dict[str, list[str]]] = field(default_factory=list)
    events: list[tuple[int, Json]] = field(default_factory=list)
    condition: threading.Condition = field(default_factory=threading.Condition)
    over: bool = False

    def put(self, *pods: Json) -> None:
        with self.condition:
            for one in pods:
                kind = "MODIFIED" if one["metadata"]["uid"] in self.pods else "ADDED"
                self.pods[one["metadata"]["uid"]] = one
                self._event(kind, one)

    def remove(self, one: Json) -> None:
        with self.condition:
            self.pods.pop(one["metadata"]["uid"])
            self._event("DELETED", one)

    def compact(self) -> None:
        """Forget the past, as etcd does: whoever watches from before has to list again."""
        with self.condition:
            self.version += 1
            self.oldest = self.version
            self.events.clear()
            self.condition.notify_all()

    def _event(self, kind: str, one: Json) -> None:
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, {"type": kind, "object": one}))
        self.condition.notify_all()


@contextmanager
def serve(cluster: Cluster, folder: Path) -> Iterator[str]:
    """Serve *cluster*; *folder* gets a service account's files. Yields the URL."""
    (folder / "token").write_text(cluster.token)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            cluster.queries.append(query)
            given = self.headers["Authorization"]
            if given != (f"Bearer {cluster.token}" if cluster.token else None):
                self.answer(401, {"code": 401})
            elif cluster.forbid:
                self.answer(403, {"code": 403})
            elif "watch" in query:
                self.watch(int(query["resourceVersion"][0]), self.wanted(parts.path, query))
            else:
                self.list(query, self.wanted(parts.path, query))

        def wanted(self, path: str, query: dict[str, list[str]]) -> Any:
            namespace = (
                path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in path else ""
            )
            node = query.get("fieldSelector", [""])[0].partition("spec.nodeName=")[2]

            def want(one: Json) -> bool:
                there = not namespace or one["metadata"]["namespace"] == namespace
                return there and (not node or one["spec"]["nodeName"] == node)

            return want

        def list(self, query: dict[str, list[str]], want: Any) -> None:
            if cluster.nonsense:
                self.send(200, cluster.nonsense)
                return
            with cluster.condition:
                cluster.lists += 1
                items = [one for one in cluster.pods.values() if want(one)]
                start = int(query.get("continue", ["0"])[0])
                end = start + int(query["limit"][0])
                meta = {"resourceVersion": str(cluster.version)}
                if end < len(items):
                    meta["continue"] = str(end)
                self.answer(200, {"metadata": meta, "items": items[start:end]})

        def watch(self, version: int, want: Any) -> None:
            cluster.watches += 1
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            dead = cluster.dead_watches
            try:
                while dead and not cluster.over:
                    with cluster.condition:
                        cluster.condition.wait(0.1)
                while cluster.huge_event:
                    self.wfile.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                while not cluster.over and not cluster.end_watches:
                    with cluster.condition:
                        if version < cluster.oldest:
                            self.chunk({"type": "ERROR", "object": {"code": 410}})
                            break
                        news = [e for v, e in cluster.events if v > version]
                        version = cluster.version
                        if not news:
                            cluster.condition.wait(0.1)
                    for event in news:
                        if cluster.drop_watches:
                            self.close_connection = True
                            self.wfile.write(b'20\r\n{"type": "ADD')
                            return
                        if want(event["object"]):
                            self.chunk(event)
                self.wfile.write(b"0\r\n\r\n")
            except OSError:  # the client has gone
                return

        def chunk(self, event: Json) -> None:
            data = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def answer(self, status: int, data: Json) -> None:
            self.send(status, json.dumps(data).encode())

        def send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        cluster.over = True
        server.shutdown()
        server.server_close()
        thread.join()
