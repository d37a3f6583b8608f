"""Takes what vmagent writes and forgets it."""

from __future__ import annotations

import http.server


class Sink(http.server.BaseHTTPRequestHandler):
    """Reads a body, says thanks."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", 9125), Sink).serve_forever()
