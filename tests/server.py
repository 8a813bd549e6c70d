"""An OpenAI-compatible server on the loopback that does what a test tells it, failures included."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def echo(request: dict[str, Any]) -> tuple[int, Any]:
    return 200, f"<{request['prompt']}>"


class Server:
    """An OpenAI-compatible server on the loopback whose answers a test decides.

    `answer` gets a request and returns a status with a text, or a list of pieces to stream.
    """

    def __init__(self) -> None:
        self.answer: Answer = echo
        self.models: list[dict[str, Any]] = [{"id": "only", "max_model_len": 4096}]
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.busy = self.busiest = self.broken_pipes = 0
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: object) -> None:
                """Keep the test's output clean."""

            def do_GET(self) -> None:
                self.send(200, {"object": "list", "data": server.models})

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server.lock:
                    server.requests.append((self.path, request))
                    server.busy += 1
                    server.busiest = max(server.busiest, server.busy)
                status, answer = server.answer(request)
                with server.lock:
                    server.busy -= 1
                if status != 200:
                    self.send(status, {"error": {"message": answer, "type": "x", "code": status}})
                elif request.get("stream"):
                    self.stream(answer)
                else:
                    self.send(200, body(self.path, answer, "stop"))

            def send(self, status: int, content: dict[str, Any]) -> None:
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def stream(self, pieces: list[str]) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                try:
                    for piece in pieces:
                        event = json.dumps(body(self.path, piece, None, streamed=True))
                        self.wfile.write(f"data: {event}\n\n".encode())
                        self.wfile.flush()
                        time.sleep(0.01)
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    server.broken_pipes += 1
                self.close_connection = True

        class Quiet(ThreadingHTTPServer):
            # A batch comes all at once; the usual backlog of 5 would refuse some of it.
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that hung up is what some tests are about."""

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


def body(path: str, text: str, finish_reason: str | None, *, streamed: bool = False) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish_reason, "logprobs": None}
    if "chat" in path:
        choice["delta" if streamed else "message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    made = {"id": "1", "object": "x", "created": 0, "model": "only", "choices": [choice]}
    return made if streamed else {**made, "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}
