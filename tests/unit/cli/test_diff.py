"""`noonbell diff`: exit code 1 is for differences alone, so that a script can tell them from a failure."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer


class FailingServer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"code": "INTERNAL", "message": "a defect"}')

    def log_message(self, *_: object) -> None: ...


def test_a_failure_of_the_server_is_no_difference(noonbell, tmp_path, monkeypatch):
    (tmp_path / "tasks.yaml").write_text("tasks:\n  - {name: a, job_type: work}\n")
    with HTTPServer(("127.0.0.1", 0), FailingServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("NOONBELL_URL", f"http://127.0.0.1:{server.server_port}")
        told = noonbell("diff", "tasks.yaml")
        server.shutdown()
    assert told == (2, "", "error: a defect\n")


def test_a_file_that_cannot_be_read_is_no_difference(noonbell, tmp_path):
    (tmp_path / "tasks.yaml").write_text("tasks: [")
    assert noonbell("diff", "tasks.yaml")[0] == 2
    assert noonbell("diff", "missing.yaml")[0] == 2
