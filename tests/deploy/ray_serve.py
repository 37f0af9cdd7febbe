"""Ray Serve as processes of its own, with `deploy/ray/serve.yaml` for this machine."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deploy.routers import free_port
from tests.paths import ROOT

_PATIENCE = 300.0  # seconds: Ray takes half a minute to start on a busy machine, and a replica ten seconds
_STATUS = """
import json, sys
import ray
from ray import serve

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
for _ in sys.stdin:
    deployed = serve.status().applications["specpair"].deployments.get("verifier")
    states = {str(state): count for state, count in deployed.replica_states.items()} if deployed else {}
    print(json.dumps([deployed.status if deployed else "", states]), flush=True)
"""


class Cluster:
    """A Ray cluster of one node, on which the verifier is deployed."""

    def __init__(self, head: subprocess.Popen[bytes], address: str, folder: Path, environment: dict[str, str]) -> None:
        self._head, self._address, self._folder, self._environment = head, address, folder, environment
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._status: subprocess.Popen[str] | None = None
        self._pause = threading.Event()

    def deploy(self, replicas: int, application: str = "deploy.ray.verifier:app", **settings: str) -> None:
        """Deploy the verifier, or change what is deployed. Returns at once.

        `application`: its place.
        `settings`: the verifier's, by the names of their variables.
        """
        given = yaml.safe_load((ROOT / "deploy/ray/serve.yaml").read_text(encoding="utf-8"))
        given["proxy_location"] = "HeadOnly"
        given["http_options"] |= {"host": "127.0.0.1", "port": self._port}
        given["applications"][0]["import_path"] = application
        [deployment] = given["applications"][0]["deployments"]
        del deployment["autoscaling_config"]
        deployment["num_replicas"] = replicas
        deployment["ray_actor_options"] = {"num_cpus": 0.1, "runtime_env": {"env_vars": settings}}
        file = self._folder / "serve.yaml"
        file.write_text(yaml.safe_dump(given), encoding="utf-8")
        command = [_program("serve"), "run", "--non-blocking", "--address", self._address, str(file)]
        done = subprocess.run(
            command, env=self._environment, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE
        )
        assert "Submitted deploy config" in done.stdout + done.stderr, done.stderr

    def status(self) -> tuple[str, dict[str, int]]:
        """The status of the deployment, and how many replicas are in which state."""
        if self._status is None:
            self._status = subprocess.Popen(
                [sys.executable, "-c", _STATUS, self._address],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._status.stdin is not None and self._status.stdout is not None
        self._status.stdin.write("\n")
        self._status.stdin.flush()
        status, states = json.loads(self._status.stdout.readline())
        return status, states

    def wait_until_healthy(self, replicas: int, also: Callable[[], bool] = lambda: True) -> None:
        """Wait until just so many replicas run, and `also` holds."""
        for _ in range(int(_PATIENCE / 0.5)):
            if self.status() == ("HEALTHY", {"RUNNING": replicas}) and also():
                return
            assert self._head.poll() is None, "Ray has ended"
            self._pause.wait(0.5)
        raise AssertionError(f"not healthy: {self.status()}")

    @property
    def replicas(self) -> list[int]:
        """The ids of the replicas' processes."""
        return [pid for pid in _below(self._head.pid) if _title(pid).startswith("ray::ServeReplica:specpair:verifier")]

    def each(self, path: str) -> list[Any]:
        """What replicas answer to `GET path`: 40 times any of them, so all of a few, almost surely."""
        with httpx.Client(base_url=self.url, timeout=30, trust_env=False) as http:
            return [http.get(path).json() for _ in range(40)]

    def close(self) -> None:
        if self._status is not None:
            self._status.communicate()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run Ray on this machine while the block lasts."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # its sockets are in it, whose paths must be short
    address = f"127.0.0.1:{free_port()}"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "VERIFIER_"))},
        "PYTHONPATH": str(ROOT),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # else other tests leave it no time
        "RAY_memory_monitor_refresh_ms": "0",  # else it kills replicas for the memory that others use
    }
    command = [_program("ray"), "start", "--head", "--block", "--num-cpus=2", "--include-dashboard=false"]
    command += [f"--port={address.rpartition(':')[2]}", "--node-ip-address=127.0.0.1", f"--temp-dir={folder}"]
    command += ["--object-store-memory=80000000", "--disable-usage-stats"]
    log = (folder / "log").open("wb")
    head = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    running = Cluster(head, address, folder, environment)
    try:
        pause = threading.Event()
        while b"Ray runtime started" not in (folder / "log").read_bytes():
            assert head.poll() is None, (folder / "log").read_text(errors="replace")
            pause.wait(0.2)
        yield running
    finally:
        running.close()
        head.terminate()
        head.wait(60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _below(pid: int) -> Iterator[int]:
    """The ids of all processes that a process has started, and those that they have."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, _read(children).split()):
            yield child
            yield from _below(child)


def _title(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/cmdline"))


def _read(path: Path) -> str:
    """A file of /proc; empty if the process has ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
