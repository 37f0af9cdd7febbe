"""Prompts for the shipped pair: short beginnings of Python source."""

from typing import Any

from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms

OVERLAPPED = {"auto": Mechanisms(), "waiting": Mechanisms(self_continue=False)}

PROMPTS = (
    "import os\nimport sys\n\n\ndef main():\n    ",
    "def read_lines(path):\n    with open(path) as file:\n        ",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    'def greet(name):\n    """Return a greeting."""\n    return ',
    "for index, value in enumerate(values):\n    if value is None:\n        ",
    "try:\n    result = compute(data)\nexcept ValueError as error:\n    ",
    "import unittest\n\n\nclass TestQueue(unittest.TestCase):\n    def test_empty(self):\n        ",
    "@property\ndef name(self):\n    ",
    "from collections import defaultdict\n\ncounts = defaultdict(int)\nfor word in words:\n",
    "if __name__ == '__main__':\n    ",
    "def fibonacci(n):\n    a, b = 0, 1\n    while ",
    "async def fetch(session, url):\n    async with session.get(url) as response:\n        ",
    "# Remove the temporary files that were left behind.\nfor name in os.listdir(folder):\n    ",
    "lambda x: ",
    "def parse(self, text, start=0, end=None):\n    if end is None:\n        end = len(text)\n",
    "class Node(object):\n    __slots__ = ('left', 'right', 'key')\n\n    def ",
    'raise TypeError("expected a string, got %r" % ',
    "    while True:\n        line = self.file.readline()\n        if not line:\n            ",
    "import logging\n\nlogger = logging.getLogger(__name__)\n\n",
    "def __repr__(self):\n    return '<%s at %#x>' % (",
    "with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:\n    s.",
    "x = [i for i in range(10) if ",
    'parser = argparse.ArgumentParser(description="Copy files")\nparser.add_argument(',
    "def test_round_trip(self):\n    for proto in range(pickle.HIGHEST_PROTOCOL + 1):\n        ",
)


def how(name: str) -> dict[str, Any]:
    """The options of `generate` for a length."""
    if name in OVERLAPPED:
        return {"length": None, "mechanisms": OVERLAPPED[name]}
    return {"length": None if name == "lockstep" else int(name), "mechanisms": LOCKSTEP}


# "auto": the default, with overlap and self-continuation. "waiting": overlap without self-continuation.
