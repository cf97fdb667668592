"""A small server of the published engine contract: each instance is a runtime on a port of its own."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATH = "/aenvironment/instance"


class Instances:
    """The image of an environment names the folder of its project."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.shown: dict[str, dict[str, Any]] = {}
        self.bodies: list[dict[str, Any]] = []
        self.refusal = ""

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        deploy = body["deployConfig"]
        ready, ready_inside = os.pipe()
        command = [sys.executable, "-m", "aenv.main", body["artifacts"][0]["content"], "--host", "127.0.0.1"]
        command += ["--port", "0", "--ready-fd", str(ready_inside), "--", *deploy["arguments"]]
        variables = {**os.environ, **deploy["environment_variables"]}
        process = subprocess.Popen(command, env=variables, pass_fds=[ready_inside], stderr=subprocess.DEVNULL)
        os.close(ready_inside)
        id = f"{body['name']}-{secrets.token_hex(3)}"
        self.processes[id] = process
        self.shown[id] = {"id": id, "status": "Pending", "ip": "", "ttl": "", "owner": ""}
        threading.Thread(target=self._until_ready, args=(id, ready), daemon=True).start()
        return self.shown[id]

    def _until_ready(self, id: str, ready: int) -> None:
        with os.fdopen(ready, "rb") as pipe:
            said = json.loads(pipe.readline() or b'{"ready": false, "error": "it ended"}')
        news = {"status": "Failed", "message": said.get("error", "")}
        if said["ready"]:
            news = {"status": "Running", "ip": said["address"].removeprefix("http://")}
        if id in self.shown:
            self.shown[id] = {**self.shown[id], **news}

    def delete(self, id: str) -> None:
        process = self.processes.pop(id)
        del self.shown[id]
        process.kill()
        process.wait()


@contextmanager
def standard_engine() -> Iterator[tuple[str, Instances]]:
    """Its URL, and what it holds; nothing of it is left afterwards."""
    instances = Instances()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, data: Any, status: int = 200, message: str = "") -> None:
            reply = {"success": status == 200, "code": 0 if status == 200 else status, "message": message}
            text = json.dumps({**reply, "data": data}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if instances.refusal:
                self.answer(None, 429, instances.refusal)
            else:
                self.answer(instances.create(body))

        def do_GET(self) -> None:
            id = self.path.removeprefix(PATH).strip("/")
            if not id:
                self.answer([*instances.shown.values()])
            elif id in instances.shown:
                self.answer(instances.shown[id])
            else:
                self.answer(None, 404, f"instance {id} not found")

        def do_DELETE(self) -> None:
            id = self.path.removeprefix(PATH).strip("/")
            if id not in instances.shown:
                self.answer(None, 404, f"instance {id} not found")
                return
            instances.delete(id)
            self.answer(True)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", instances
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        for id in [*instances.processes]:
            instances.delete(id)
