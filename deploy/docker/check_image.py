"""Builds the images for CPUs without a daemon, and serves from them as a container would.

    apt-get install buildah debootstrap iproute2
    sudo .venv/bin/python -m deploy.docker.check_image

Buildah runs every step of the Dockerfile. The base image is a stand-in, as no registry of images is asked: Debian
bookworm from debootstrap with Debian's Python in place of Docker's. Then all three are started from what was built, in
namespaces of their own (network, processes, mounts): as the image's user without capabilities, with a root file system
that is read-only, and with the image's entry point as process 1. The verifier registers with the router. A text is
asked for at each, and SIGTERM is sent while one is written. What does not hold ends the program with status 1, and a
line that says so.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
IMAGES = {"verifier": "specpair-verifier:cpu", "drafter": "specpair-drafter", "router": "specpair-router"}
CERTIFICATES = Path("/etc/ssl/certs")  # those of this machine, for pip in the build
KEY = "0123456789abcdef0123456789abcdef"
ADDRESS = {
    "verifier": "http://127.0.0.1:8000",
    "drafter": "http://127.0.0.1:8080",
    "router": "http://127.0.0.1:8090",
}
_HEALTHY_WITHIN = 120.0  # seconds
# In the namespaces of one container: mounts, and then the entry point as process 1. $1: root, $2: cache, $3: hosts.
_ENTER = """
mount --make-rprivate /
mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"
mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/tmp"
mount --bind "$2" "$1/var/cache/specpair" && mount --bind "$3" "$1/etc/hosts"
root=$1; shift 3
exec chroot "$root" setpriv --reuid 10001 --regid 10001 --clear-groups --bounding-set=-all --no-new-privs env -i "$@"
"""


class Failed(Exception):
    """An image fails a check."""


class Image(NamedTuple):
    """The parts of an image's configuration that a container gets. `health`: the command of its health check."""

    user: str
    environment: list[str]
    folder: str
    command: list[str]
    health: list[str]


class Builder:
    """Buildah with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}

    def run(self, *arguments: str) -> str:
        """The output of a command of Buildah. Raises Failed."""
        command = ["buildah", "--root", str(self._folder / "store"), "--runroot", str(self._folder / "run"), *arguments]
        done = subprocess.run(command, env=self._environment, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        if done.returncode != 0:
            raise Failed(f"{shlex.join(command)}: status {done.returncode}")
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        return bool(self.run("images", "--quiet", "--filter", f"reference={image}"))

    def make_base(self, image: str, mirror: str) -> None:
        """Debian's smallest system with its Python, under the name of the base image."""
        system = self._folder / "base"
        if not (system / "usr/local/bin/python").exists():
            check("debootstrap", "--variant=minbase", "bookworm", str(system), mirror)
            install = "apt-get update && apt-get install -y --no-install-recommends python3-venv ca-certificates"
            link = "ln -s /usr/bin/python3 /usr/local/bin/python3 && ln -s python3 /usr/local/bin/python"
            check("chroot", str(system), "sh", "-ec", f"{install} && {link}")
        container = self.run("from", "scratch")
        self.run("add", "--quiet", container, f"{system}/", "/")
        self.run("commit", "--quiet", "--rm", container, image)

    def build(self, target: str) -> None:
        """Run the steps for one target. ENGINE is given: Buildah 1.28 chooses no stage by an argument's default."""
        arguments = ["--file", str(DOCKERFILE), "--ignorefile", str(ROOT / ".dockerignore"), "--format", "docker"]
        arguments += ["--target", target, "--build-arg", "ENGINE=cpu", "--tag", IMAGES[target]]
        arguments += ["--layers", "--pull-never", "--network", "host", "--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
        self.run("build", *arguments, str(ROOT))

    def image(self, target: str) -> Image:
        found: Any = json.loads(self.run("inspect", "--type", "image", IMAGES[target]))["Docker"]["config"]
        command = [*(found["Entrypoint"] or []), *(found["Cmd"] or [])]
        how, *health = found["Healthcheck"]["Test"]
        if how != "CMD":
            raise Failed(f"{target}: the health check needs a shell")
        return Image(found["User"], found["Env"], found["WorkingDir"], command, health)

    @contextmanager
    def unpacked(self, target: str) -> Iterator[Path]:
        """The root file system of a container of the image."""
        container = self.run("from", "--pull-never", IMAGES[target])
        try:
            yield Path(self.run("mount", container))
        finally:
            self.run("rm", container)


class Container:
    """A running container: a process in its own namespaces, except the network, which is this program's."""

    def __init__(self, image: Image, root: Path, folder: Path, settings: Mapping[str, str]) -> None:
        self._root, self._image = root, image
        cache, hosts = folder / "cache", folder / "hosts"
        cache.mkdir(parents=True, exist_ok=True)
        os.chown(cache, *map(int, image.user.split(":")))
        hosts.write_text("127.0.0.1 localhost verifier drafter router\n", encoding="ascii")
        self._inside = [*image.environment, *(f"{name}={value}" for name, value in settings.items())]
        start = ["env", "--chdir", image.folder, *image.command]
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", _ENTER, "sh"]
        self._process = subprocess.Popen([*namespaces, str(root), str(cache), str(hosts), *self._inside, *start])

    @property
    def first(self) -> int:
        """The container's process 1, by its number outside. Raises Failed."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        while self._process.poll() is None:
            if found := children.read_text(encoding="ascii").split():
                return int(found[0])
        raise Failed(f"{self._image.command[0]} ended with status {self._process.returncode}")

    def status(self) -> dict[str, str]:
        """The status of process 1 in /proc."""
        lines = Path(f"/proc/{self.first}/status").read_text(encoding="ascii").splitlines()
        return dict(line.split(":\t", 1) for line in lines)

    def root_options(self) -> list[str]:
        """The mount options of its root."""
        lines = Path(f"/proc/{self.first}/mounts").read_text(encoding="ascii").splitlines()
        return next(line.split()[3].split(",") for line in reversed(lines) if line.split()[1] == "/")

    def run(self, *command: str) -> int:
        """The exit status of a command in its root and namespaces, as its user."""
        enter = ["nsenter", f"--target={self.first}", "--mount", "--pid", f"--root=/proc/{self.first}/root"]
        user, group = self._image.user.split(":")
        enter += ["setpriv", "--reuid", user, "--regid", group, "--clear-groups", "env", "-i", *self._inside]
        return subprocess.run([*enter, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode

    def wait_until_healthy(self) -> float:
        """Seconds until the image's health check succeeded. Raises Failed."""
        began = time.monotonic()
        while time.monotonic() < began + _HEALTHY_WITHIN:
            if self.run(*self._image.health) == 0:
                return time.monotonic() - began
            time.sleep(0.2)
        raise Failed(f"{self._image.command[0]} was not healthy within {_HEALTHY_WITHIN:.0f} s")

    def stop(self) -> int:
        """Send SIGTERM to process 1, as `docker stop` does. Returns the exit status."""
        os.kill(self.first, signal.SIGTERM)
        return self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def check(*command: str) -> None:
    """Run a program. Raises Failed."""
    if (status := subprocess.run(command).returncode) != 0:
        raise Failed(f"{shlex.join(command)}: status {status}")


def must(holds: bool, what: str) -> None:
    """Print the checked statement. Raises Failed if it does not hold."""
    if not holds:
        raise Failed(f"does not hold: {what}")
    print(f"ok: {what}", flush=True)


def post(end: str, path: str, body: Mapping[str, Any], key: str = KEY) -> tuple[int, Any]:
    """Status and body of the reply."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = Request(ADDRESS[end] + path, json.dumps(body).encode(), headers)
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except HTTPError as error:
        return error.code, json.load(error)


def check_end(end: str, container: Container) -> None:
    """Check that the container is healthy within its limits, and writes texts for callers with the key only."""
    must(True, f"{end}: healthy after {container.wait_until_healthy():.1f} s, by the image's own check")
    status = container.status()
    must(status["Uid"].split()[0] == "10001" and status["NSpid"].split()[-1] == "1", f"{end}: user 10001, process 1")
    must(int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"] == "1", f"{end}: no capabilities, no new privileges")
    must(container.root_options()[0] == "ro", f"{end}: the root file system is read-only")
    must(container.run("touch", "/var/cache/specpair/x", "/tmp/x") == 0, f"{end}: the cache and /tmp can be written")
    path = "/v1/completions" if end == "drafter" else "/generate"
    began = time.monotonic()
    code, body = post(end, path, {"prompt": "def main(", "max_tokens": 1, "temperature": 0})
    took = f"{1000 * (time.monotonic() - began):.0f} ms"
    must(code == 200, f"{end}: a first token from {path} after {took}: {json.dumps(body)[:80]}")
    must(post(end, path, {"prompt": "x"}, "wrong")[0] == 401, f"{end}: another key is refused")


def check_drain(container: Container) -> None:
    """Check that after SIGTERM a text under way ends and new texts are refused."""
    with ThreadPoolExecutor(2) as threads:
        text = threads.submit(post, "verifier", "/generate", {"prompt": "def main(", "max_tokens": 1500})
        time.sleep(0.5)
        stopped = threads.submit(container.stop)
        time.sleep(0.2)
        code, body = post("verifier", "/generate", {"prompt": "x", "max_tokens": 1})
        must(code == 503 and body["error"]["code"] == "shutting_down", "verifier: after SIGTERM a new text is refused")
        code, body = text.result()
        must(code == 200 and body["finish_reason"] in ("length", "stop"), "verifier: the text under way was written")
        must(stopped.result() == 0, "verifier: then the process ended with status 0")


def serve(builder: Builder, folder: Path) -> None:
    """Start all three from their images, and check them. This process has a network of its own."""
    check("ip", "link", "set", "lo", "up")
    own = {
        "verifier": {
            "VERIFIER_API_KEY": KEY,
            "VERIFIER_DETERMINISTIC": "yes",
            "VERIFIER_ROUTER": "http://router:8090",
            "VERIFIER_ROUTER_KEY": KEY,
            "VERIFIER_ADVERTISE": "http://verifier:8000",
        },
        "drafter": {"DRAFTER_VERIFIER": "http://verifier:8000", "DRAFTER_API_KEY": KEY, "DRAFTER_SERVE_KEY": KEY},
        "router": {"ROUTER_API_KEY": KEY, "ROUTER_REGISTER_KEY": KEY},
    }
    with ExitStack() as stack:
        running: dict[str, Container] = {}
        for end in IMAGES:
            root = stack.enter_context(builder.unpacked(end))
            running[end] = Container(builder.image(end), root, folder / end, own[end])
            stack.callback(running[end].kill)
            check_end(end, running[end])
        brought = running["drafter"].run("python", "-c", "import yaml, lab.bench.cli.program") == 0
        must(brought, "drafter: what `drafter bench` needs is there")
        for end in ("drafter", "router"):
            must(running[end].stop() == 0, f"{end}: SIGTERM ends it with status 0")
        check_drain(running["verifier"])


def base_image() -> str:
    """The base image of the Dockerfile, by the defaults of its arguments."""
    defaults = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE))
    return str(defaults["PYTHON_IMAGE"].replace("${PYTHON_VERSION}", defaults["PYTHON_VERSION"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Build the images for CPUs, and serve from them.")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache/images", help="for what is built: 4 GB")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian", help="of Debian's packages")
    parser.add_argument("--serve-only", action="store_true", help="serve from what was built")
    options = parser.parse_args(arguments)
    builder = Builder(options.folder)
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        if options.serve_only:
            serve(builder, options.folder)
            return 0
        if not builder.has(base_image()):
            builder.make_base(base_image(), options.mirror)
        for target in IMAGES:
            builder.build(target)
    except Failed as error:
        print(f"check_image: {error}", file=sys.stderr)
        return 1
    again = [sys.executable, "-m", "deploy.docker.check_image", "--serve-only", "--folder", str(options.folder)]
    return subprocess.run(["unshare", "--net", *again], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
