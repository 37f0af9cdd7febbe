"""Copies what libraries and native code print, on standard output and error, into the report of a self-test.

Before a runtime of a chip crashes, it prints why. So a process of its own does the copying: it survives the crash.

    python -m verifier_server.selftest.printed REPORT    # what `Copied` starts; reads a list of secrets, then output

What is copied may hold secrets: a vendor's program may print command lines and settings. Secrets that are known are
always found. Others are found by the names before them, and too much is hidden rather than too little.
"""

import io
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

_HIDDEN = "(hidden)"
_LEAST = 4  # characters: a shorter secret would also be found in numbers and words
# Each pattern takes time in proportion to the text: what programs print may have very long words.
_WORDS = r"(?:key|token|secret|password|passwd|credentials)"
_VALUE = r"""(?:"[^"]*"?|'[^']*'?)?\S*"""  # behind an opening quote all up to the next one, or the rest of the line
_NAMED = re.compile(rf"""((?<![\w-])[\w-]*{_WORDS}(?:_id)?)(["']?\s*[=:]\s*){_VALUE}""", re.IGNORECASE)
_FLAG = re.compile(rf"""((?<![\w-])--?[\w-]*{_WORDS}["']?[\s,]\s*){_VALUE}""", re.IGNORECASE)
_SCHEME = re.compile(r"(\b(?:Bearer|Basic)\s+)\S+", re.IGNORECASE)
_USER = re.compile(r"(://)(?:(?!://)[^\s@])+(?=@)")
# Names of other things: special tokens, and places in a cache.
_NO_SECRET = re.compile(
    r"(?:bos|eos|eot|pad|unk|mask|sep|cls|begin|end|next|cache|sort)[_-](?:token|key)(?:_id)?", re.IGNORECASE
)
_ROOT = Path(__file__).resolve().parents[2]
_STREAMS = (1, 2)  # file descriptors
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MARK = "        | "  # before each line in the report
_END_OF_PART = b"\0\n"  # asks the copying process for a byte, as soon as it has copied all before
_PATIENCE = 5.0  # seconds to wait for it


def names_secret(name: str) -> bool:
    """Whether the variable or setting `name` holds a secret, as its name says."""
    return re.search(_WORDS, name, re.IGNORECASE) is not None


def hider(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that replaces these secrets in a text, and what is called a secret there."""
    known = sorted({secret for secret in secrets if len(secret) >= _LEAST}, key=len, reverse=True)

    def named(found: re.Match[str]) -> str:
        return found[0] if _NO_SECRET.fullmatch(found[1]) else f"{found[1]}{found[2]}{_HIDDEN}"

    def hide(text: str) -> str:
        for secret in known:
            text = text.replace(secret, _HIDDEN)
        text = _NAMED.sub(named, text)
        for pattern in (_FLAG, _SCHEME, _USER):
            text = pattern.sub(rf"\1{_HIDDEN}", text)
        return text

    return hide


class Copied:
    """From now until `end`, what this process and its children print is shown on standard error and copied."""

    def __init__(self, report: Path, secrets: Sequence[str]) -> None:
        """All of the file descriptors 0, 1 and 2 have to be open."""
        read, self._pipe = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verifier_server.selftest.printed", str(report.absolute())],
            cwd=_ROOT,
            stdin=read,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C in a terminal is for this process, which ends it
        )
        os.close(read)
        os.write(self._pipe, json.dumps(list(secrets)).encode() + b"\n")
        _flush()
        self._saved = {stream: os.dup(stream) for stream in _STREAMS}
        for stream in _STREAMS:
            os.dup2(self._pipe, stream)

    def settle(self) -> None:
        """Wait until all that was printed so far is in the report."""
        _flush()
        answers = self._process.stdout
        assert answers is not None
        with suppress(BrokenPipeError):  # it was killed
            os.write(self._pipe, _END_OF_PART)
            if select.select([answers], [], [], _PATIENCE)[0]:
                os.read(answers.fileno(), 1)

    def end(self) -> None:
        """Give the process its streams back, when all is copied. A second call does nothing.

        What children print later is copied as long as they live.
        """
        if not self._saved:
            return
        self.settle()
        for stream, saved in self._saved.items():
            os.dup2(saved, stream)
            os.close(saved)
        self._saved = {}
        os.close(self._pipe)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # its reader is gone
                stream.flush()


def main() -> None:
    """Copy standard input to standard error as it comes, and line by line to the report, without its secrets."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # else a terminal may stop a process in the background that prints
    given = io.BufferedReader(io.FileIO(0))
    hide = hider(json.loads(given.readline()))
    with open(sys.argv[1], "a", encoding="utf-8", errors="backslashreplace") as report:

        def write(lines: Sequence[bytes]) -> None:
            with suppress(OSError):  # the disk is full: what prints must go on
                report.writelines(_MARK + hide(_plain(line)) + "\n" for line in lines)
                report.flush()

        rest = b""
        while printed := given.read1():
            parts = (rest + printed).split(_END_OF_PART)
            with suppress(OSError):  # the terminal is gone
                os.write(2, printed.replace(_END_OF_PART, b""))
            for part in parts[:-1]:
                write(part.splitlines())
                os.write(1, b".")
            *lines, rest = parts[-1].split(b"\n")
            write(lines)
        write(rest.splitlines())


def _plain(line: bytes) -> str:
    """A line as it looks at the end: without colours, and of what overwrites itself only the last."""
    return _COLOURS.sub("", line.decode(errors="backslashreplace")).rstrip("\r").rpartition("\r")[2]


if __name__ == "__main__":
    main()
