"""A server that answers as SGLang 0.5.23 does, as far as its source tells, over the scripted model's logits.

Nothing of it was compared with a running SGLang. `recorded/sglang.json` has the shapes of its replies.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from backends.scripted import ScriptedBackend
from specpair.engines.backend import Logits

RECORDED = json.loads(Path(__file__).with_name("recorded").joinpath("sglang.json").read_text(encoding="utf-8"))
_PAUSE = 0.002  # seconds between looks of a pass that is held


class SglangStandIn:
    """Runs from when it is made until `kill`. Counts since the last `forget`."""

    def __init__(self, backend: ScriptedBackend, *, key: str | None = None, incremental: bool = False) -> None:
        """`incremental`: whether events of a stream tell only what is new, as with --incremental-streaming-output."""
        self.backend, self.key, self.incremental = backend, key, incremental
        self.model = {
            "model_path": "made/scripted-2",
            "served_model_name": "made/scripted-2",
            "tokenizer_path": "made/scripted-2",
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "disaggregation_mode": "null",
            "model_type": "scripted",
            "architectures": ["ScriptedForCausalLM"],
        }
        self.server: dict[str, Any] = {
            "version": "0.5.23",
            "max_total_num_tokens": 8192,
            "max_req_input_len": 512,
            "max_running_requests": 4,
            "tp_size": 2,
            "pp_size": 1,
            "dp_size": 1,
            "disable_radix_cache": False,
            "internal_states": [{"effective_max_running_requests_per_dp": 4}],
        }
        self.alien = False  # whether it is another kind of server
        self.loading = False  # whether its health says that it is not ready
        self.has_tokenizer = True
        self.gate = threading.Event()  # passes wait while it is clear
        self.gate.set()
        self.holds_in = 0  # tokens after which the gate is closed; 0: it is left alone
        self.damage: Callable[[Any], Any] = lambda reply: reply  # applied to each reply of a pass, and each event
        self.refusals: list[tuple[int, Any]] = []  # statuses and bodies of the next answers to passes
        self.cuts = 0  # how many of the next passes have their connection closed in place of a reply
        self.running: set[str] = set()
        self.aborted: set[str] = set()
        self._known: dict[str, list[list[int]]] = {}  # what the radix cache holds, by salt
        self._lock = threading.Lock()
        self.forget()
        self._listen(0)

    def forget(self) -> None:
        """Count from zero."""
        self.passes, self.judged = 0, 0
        self.salts: set[str] = set()
        self.asked: list[Mapping[str, Any]] = []  # bodies of the passes

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def kill(self) -> None:
        """Break off everything, and answer no more."""
        self._http.shutdown()
        self._http.server_close()
        with self._lock:
            for connection in self._http.connections:
                break_off(connection)
        self._thread.join()
        self.running.clear()

    def restart(self) -> None:
        """Answer again at the same address, with nothing in the cache."""
        self._known.clear()
        self._listen(self._port)

    def _listen(self, port: int) -> None:
        self._http = _Http(port, self)
        self._port = self._http.server_port
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def begin(self, body: Mapping[str, Any]) -> int:
        """Take in a pass; returns how many tokens of its prompt the cache holds."""
        ids, start = body["input_ids"], body.get("logprob_start_len", -1)
        most = len(ids) - 1 if start < 0 else min(len(ids) - 1, start)
        with self._lock:
            known = self._known.setdefault(body.get("cache_salt") or "", [])
            self.passes += 1
            self.asked.append(body)
            self.salts.add(body.get("cache_salt") or "")
            self.running.add(body["rid"])
            if start > 0:
                self.judged += len(ids) - start - 1
            cached = max((_common(ids, each) for each in known), default=0)
            known.append(list(ids))
        return min(cached, most)

    def end(self, name: str) -> None:
        with self._lock:
            self.running.discard(name)

    def abort(self, prefix: str) -> None:
        with self._lock:
            self.aborted |= {name for name in self.running if name.startswith(prefix)}

    def is_aborted(self, name: str) -> bool:
        """Waits while the gate is closed."""
        while not self.gate.wait(_PAUSE):
            if name in self.aborted or name not in self.running:
                break
        return name in self.aborted

    def decoded(self) -> None:
        """Count a token."""
        with self._lock:
            if self.holds_in == 1:
                self.gate.clear()
            self.holds_in = max(0, self.holds_in - 1)

    def scores(self, ids: Sequence[int]) -> Logits:
        """Log probabilities behind `ids`."""
        row = self.backend.logits_after(ids)
        top = row.max()
        scores: Logits = row - top - np.log(np.exp(row - top).sum())
        return scores


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, stand_in: SglangStandIn) -> None:
        self.stand_in = stand_in
        self.connections: list[socket.socket] = []
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was broken off is none."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each second write waits for the other end
    server: _Http

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        stand_in = self.server.stand_in
        if self.path == "/health":
            self.reply(404 if stand_in.alien else 503 if stand_in.loading else 200, None)
        elif self._admitted():
            told = {"/model_info": stand_in.model, "/server_info": stand_in.server}.get(self.path)
            self.reply(*((404, {"detail": "Not Found"}) if told is None else (200, told)))

    def do_POST(self) -> None:
        stand_in = self.server.stand_in
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._admitted():
            return
        if self.path == "/abort_request":
            stand_in.abort(body["rid"])
            self.reply(200, None)
        elif stand_in.refusals:
            self.reply(*stand_in.refusals.pop(0))
        elif stand_in.cuts:
            stand_in.cuts -= 1
            self.close_connection = True
        else:
            _Pass(stand_in, body).run(self)

    def send(self, reply: Any) -> None:
        self.reply(200, self.server.stand_in.damage(reply))

    def begin_events(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, data: Any) -> None:
        told = data if isinstance(data, bytes) else json.dumps(self.server.stand_in.damage(data)).encode()
        self.wfile.write(b"data: " + told + b"\n\n")

    def _admitted(self) -> bool:
        key = self.server.stand_in.key
        admitted = key is None or self.headers.get("Authorization") == f"Bearer {key}"
        if not admitted:
            self.reply(401, {"error": "Unauthorized"})
        return admitted

    def reply(self, status: int, told: Any) -> None:
        content = b"" if told is None else told if isinstance(told, bytes) else json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Pass:
    """A request to `/generate`."""

    def __init__(self, stand_in: SglangStandIn, body: Mapping[str, Any]) -> None:
        self._of, self._body = stand_in, body
        self._ids: list[int] = body["input_ids"]
        self._params: Mapping[str, Any] = body["sampling_params"]
        self._output: list[int] = []
        assert self._params["temperature"] == 0.0, "the stand-in is greedy"

    def run(self, handler: _Handler) -> None:
        longest = self._of.server["max_req_input_len"]
        if len(self._ids) >= longest:
            message = f"Input length ({len(self._ids)} tokens) exceeds the maximum allowed length ({longest} tokens)."
            handler.reply(400, {"error": {"message": message}})
            return
        self._cached, name = self._of.begin(self._body), self._body["rid"]
        try:
            if self._body.get("stream"):
                self._stream(handler, name)
            else:
                while (reason := self._step(name)) is None:
                    pass
                handler.send(self._told(reason))
        finally:
            self._of.end(name)

    def _stream(self, handler: _Handler, name: str) -> None:
        handler.begin_events()
        told = 0
        while True:
            reason = self._step(name)
            shown = self._output[told:] if self._of.incremental else self._output
            handler.event(self._told(reason) | {"output_ids": list(shown)})
            told = len(self._output)
            if reason is not None:
                break
        handler.event(b"[DONE]")

    def _step(self, name: str) -> Mapping[str, Any] | None:
        """Decode a token. Returns why the pass ends there; None: it goes on."""
        if self._of.is_aborted(name):
            return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
        token = int(np.argmax(self._of.scores([*self._ids, *self._output])))
        self._output.append(token)
        self._of.decoded()
        ends = {*self._params.get("stop_token_ids", ()), *self._of.backend.vocabulary.ends}
        if not self._params.get("ignore_eos") and token in ends:
            return {"type": "stop", "matched": token}
        most = self._params["max_new_tokens"]
        return {"type": "length", "length": most} if len(self._output) >= most else None

    def _told(self, reason: Mapping[str, Any] | None) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "id": self._body["rid"],
            "finish_reason": reason,
            "prompt_tokens": len(self._ids),
            "weight_version": "default",
            "num_retractions": 0,
        }
        if self._body.get("return_logprob"):
            meta |= self._logprobs()
        meta |= {
            "reasoning_tokens": 0,
            "completion_tokens": len(self._output),
            "cached_tokens": self._cached,
        }
        if self._cached:
            meta["cached_tokens_details"] = {"device": self._cached, "host": 0}
        meta["response_sent_to_client_ts"] = time.time()
        if reason is not None:
            meta["e2e_latency"] = 0.01
        return {"text": "", "output_ids": list(self._output), "meta_info": meta}

    def _logprobs(self) -> dict[str, Any]:
        start, number = self._body["logprob_start_len"], self._body["top_logprobs_num"]
        ids, texts = self._ids, self._body.get("return_text_in_logprobs") and self._of.has_tokenizer
        size = self._of.backend.vocabulary.size

        def entry(score: float | None, token: int) -> list[Any]:
            text = self._of.backend.vocabulary.pieces[token].decode(errors="replace") if texts else None
            return [score, token, text]

        def top(scores: Logits) -> list[list[Any]]:
            # Of tokens that tie, a device takes any first.
            best = sorted(range(len(scores)), key=lambda token: (-scores[token], -token))[:number]
            return [entry(float(scores[token]), token) for token in best]

        rows = [self._of.scores(ids[:at]) for at in range(start + 1, len(ids))]
        clipped = [token if token < size - 1 else 0 for token in ids[start:]]
        last = self._of.scores([*ids, *self._output[:-1]])
        return {
            "input_token_logprobs": [
                entry(None, clipped[0]),
                *(entry(float(row[token]), token) for row, token in zip(rows, clipped[1:], strict=True)),
            ],
            "output_token_logprobs": [entry(float(last[token]), token) for token in self._output[-1:]],
            "output_token_logprobs_length": len(self._output),
            "input_top_logprobs": [None, *map(top, rows)],
            "output_top_logprobs": [top(last)],
        }


def break_off(connection: socket.socket) -> None:
    """Break off a connection, as the end of a process does."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was closed before


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
