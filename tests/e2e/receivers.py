"""What PagerDuty and Slack would have been told, kept in the order of arrival."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]


class Receivers:
    """Answers as PagerDuty's events API and as a Slack webhook, on one loopback port."""

    def __init__(self) -> None:
        self.pages: list[Message] = []
        self.tickets: list[Message] = []
        kept = {"/v2/enqueue": (self.pages, 202), "/slack": (self.tickets, 200)}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                messages, status = kept[self.path]
                messages.append(json.loads(body))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def paged(self, action: str, alert: str) -> list[Message]:
        """Pages that were opened (``trigger``) or closed (``resolve``) for an alert."""
        return [
            page
            for page in self.pages
            if page["event_action"] == action and alert in page["payload"]["summary"]
        ]

    def ticketed(self, alert: str) -> list[Message]:
        """Tickets that name an alert in their title."""
        titles = [(one, one["attachments"][0]["title"]) for one in self.tickets]
        return [one for one, title in titles if f"] {alert} " in title and "[FIRING" in title]
