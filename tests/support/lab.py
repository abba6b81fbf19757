"""JupyterLab over HTTP, as a browser speaks to it: ask, write files, run code in a kernel."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any, Optional

import requests

from tests.support.containers import Tracked
from tests.support.wait import BUDGETS, until

# What a server says about those whom it does not let in.
REFUSALS = (r"wrote error: 'Forbidden'", r" 403 GET /api/contents ")


class Lab:
    """One server. `url` ends with the base URL's slash."""

    def __init__(self, url: str, token: str = "", container: Optional[Tracked] = None) -> None:
        self.url = url
        self.token = token
        self._container = container
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy of the developer's stands between us and our own machine
        self._session.verify = False
        if token:
            self._session.headers["Authorization"] = f"token {token}"

    @classmethod
    def of(cls, container: Tracked, token: str = "", base: str = "/", scheme: str = "http", port: int = 8888) -> Lab:
        """The server in a container that publishes its port, once it answers. Without a token: the printed one."""
        lab = cls(f"{scheme}://127.0.0.1:{container.port(port)}{base}", "", container)
        lab.wait()
        return cls(lab.url, token or printed_token(container), container)

    def wait(self, pause: float = 0.1) -> None:
        """Wait until it answers at all."""

        def probe() -> Optional[bool]:
            if self._container:
                state = self._container.state
                assert state["Running"], f"the container ended (exit {state['ExitCode']}):\n{self._container.log()}"
            try:
                return self.ask("api").ok
            except requests.RequestException:
                return None

        until("JupyterLab to answer", probe, lambda: self._container.log() if self._container else self.url, pause)

    def ask(self, path: str, method: str = "GET", **more: Any) -> requests.Response:
        """One request; its answer whatever the status."""
        return self._session.request(method, self.url + path, timeout=30, allow_redirects=False, **more)

    def get(self, path: str) -> Any:
        """The JSON of an answer that must be a success."""
        return _good(self.ask(path)).json()

    def lets_in(self) -> bool:
        """Whether what needs a login is open to us."""
        status = self.ask("api/contents").status_code
        assert status in (200, 403), f"{self.url}api/contents answered {status}"
        return status == 200

    def write(self, path: str, text: str) -> None:
        """Save a text file below the root folder, as the editor does."""
        body = {"type": "file", "format": "text", "content": text}
        _good(self.ask(f"api/contents/{path}", "PUT", json=body))

    def run(self, code: str, keep: bool = False) -> str:
        """Run code in a kernel of its own and return what it printed; an exception there fails the test.

        `keep`: leave the kernel, idle.
        """
        kernel = _good(self.ask("api/kernels", "POST", json={})).json()["id"]
        try:
            return self._execute(kernel, code)
        finally:
            if not keep:
                self.ask(f"api/kernels/{kernel}", "DELETE")

    def type_in_terminal(self, text: str) -> None:
        """Open a terminal, and type when its shell shows a prompt."""
        name = _good(self.ask("api/terminals", "POST", json={})).json()["name"]
        with self._connect(f"terminals/websocket/{name}") as socket:
            shown = ""
            while "$ " not in shown:
                kind, *content = json.loads(socket.recv())
                shown += content[0] if kind == "stdout" else ""
            socket.send(json.dumps(["stdin", text]))

    def _execute(self, kernel: str, code: str) -> str:
        with self._connect(f"api/kernels/{kernel}/channels?session_id=test") as socket:
            request = _request(code)
            socket.send(json.dumps(request))
            return _printed(socket, request["header"]["msg_id"])

    @contextlib.contextmanager
    def _connect(self, path: str) -> Iterator[Any]:
        import ssl

        import websocket

        socket = websocket.create_connection(
            f"ws{self.url[4:]}{path}",
            header=[f"Authorization: token {self.token}"] if self.token else [],
            timeout=BUDGETS["a kernel's answer"],
            sslopt={"cert_reqs": ssl.CERT_NONE},
            http_no_proxy=["127.0.0.1", "localhost"],
        )
        try:
            yield socket
        finally:
            socket.close()


def printed_token(container: Tracked) -> str:
    """The token in the URL that the start printed, or nothing when it printed none."""
    line = container.wait_for_line(r"JupyterLab: \S+(.*)").group(0)
    return line.partition("?token=")[2].strip()


def _good(answer: requests.Response) -> requests.Response:
    assert answer.ok, f"{answer.request.method} {answer.url}: {answer.status_code} {answer.text[:2000]}"
    return answer


def _request(code: str) -> dict[str, Any]:
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "test", "username": "test"}
    content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
    return {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}


def _printed(socket: Any, message_id: str) -> str:
    """Collect stdout and stderr until the kernel is idle again."""
    text = ""
    while True:
        message = json.loads(socket.recv())
        if message["parent_header"].get("msg_id") != message_id:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            text += content["text"]
        elif kind == "error":
            raise AssertionError("the kernel raised:\n" + "\n".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            return text
