"""How the stand-in's bytes go over the wire, and every way in which they go wrong there."""

import gzip
import socket
import struct
from http.server import BaseHTTPRequestHandler

KNOWN_TO_BE_SLOW_S = 30.0
MOST_BYTES = 1 << 30
"""Of a body without an end: a client that takes them all has lost."""


class Wire(BaseHTTPRequestHandler):
    """One connection; answers are sent as the request's fault wants it."""

    WITHOUT_ANSWER = ("stall", "lost", "garbage", "continue", "drip-headers", "endless-headers")

    def _do_not_answer(self, kind):
        """Everything but an answer."""
        self.close_connection = True
        wait = self.hub.closing.wait
        if kind == "stall":
            wait(KNOWN_TO_BE_SLOW_S)
        elif kind == "lost":
            self.connection.close()
        elif kind == "garbage":
            self.wfile.write(bytes(range(256)) * 4)
        elif kind == "continue":
            while not wait(0.02):
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif kind == "drip-headers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
            while not wait(0.02):
                self.wfile.write(b"a")
        elif kind == "endless-headers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            for i in range(1 << 20):
                self.wfile.write(b"X-%d: a\r\n" % i)

    def _send(self, status, headers, body):
        """An answer: status line, headers, body."""
        self.request_log.status = status
        kind = self.fault.kind if self.fault else ""
        if kind == "mangle":
            body = self.fault.body
        if kind == "gzip":
            headers, body = headers | {"Content-Encoding": "gzip"}, gzip.compress(body)
        if kind == "bomb":
            headers, body = headers | {"Content-Encoding": "gzip"}, self.fault.body
        if kind == "encoded":
            headers = headers | {"Content-Encoding": "gzip"}
        length = len(body) + {"longer": 100, "shorter": -(len(body) // 2)}.get(kind, 0)
        self.send_response(status)
        bucket = "api" if self.path.startswith("/api/") else "resolve"
        if (limit := self.hub.limits.get(bucket)) is not None:
            self.send_header("RateLimit", f'"{bucket}";r={limit - 1};t=300')
            self.send_header("RateLimit-Policy", f'"fixed window";"{bucket}";q={limit};w=300')
        for name, value in headers.items():
            self.send_header(name, value)
            if kind == "duplicate":
                self.send_header(name, value + "0")
        if kind == "endless":
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self._send_body(body)

    def _send_body(self, body):
        fault = self.fault
        kind = fault.kind if fault else ""
        after = fault.after if fault else 0
        if kind in ("reset", "truncate", "stall"):
            self._write(body[:after])
            if kind == "stall":
                self.hub.closing.wait(KNOWN_TO_BE_SLOW_S)
            if kind == "reset":
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            self.connection.close()
        elif kind == "drip":
            for i in range(len(body)):
                if self.hub.closing.wait(0.05):
                    return
                self._write(body[i : i + 1])
        elif kind == "endless":
            piece = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
            while self.request_log.body_bytes < MOST_BYTES:
                self._write(piece)
        else:
            self._write(body)

    def _write(self, body):
        limit = self.hub.bytes_per_second if self.request_log.where == "cdn" else None
        for i in range(0, len(body), 1 << 16):
            piece = body[i : i + (1 << 16)]
            if limit is not None and self.hub.closing.wait(len(piece) / limit):
                return
            self.request_log.body_bytes += len(piece)
            self.wfile.write(piece)
        self.wfile.flush()
