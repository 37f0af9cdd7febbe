"""Two machines in three commands, as a user types them: a box shares its model, a laptop joins it and writes a text."""

import re
import sys
from pathlib import Path

import pytest

from models import DEFAULT_DRAFT, DEFAULT_TARGET
from tests.stand_ins.hub import serving
from tests.terminal.pseudo import check, python, terminal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals and /proc as on Linux")
CATALOGUE = '[[drafter]]\nname = "u/small"\nvocabulary = ""\ntargets = ["big*"]\nbytes = {}\nlicence = "MIT"\n'
FILES = {"u/big": {"Big-Q8_0.gguf": DEFAULT_TARGET}, "u/small": {"Small-Q4_0.gguf": DEFAULT_DRAFT}}


def test_a_box_shares_a_laptop_joins_and_writes(tmp_path: Path) -> None:
    catalogue = tmp_path / "catalogue.toml"
    catalogue.write_text(CATALOGUE.format(DEFAULT_DRAFT.stat().st_size))
    files = {name: {file: path.read_bytes() for file, path in each.items()} for name, each in FILES.items()}
    with serving(files) as hub:

        def home(name: str) -> dict[str, str]:
            folder = str(tmp_path / name)
            variables = {"HOME": folder, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder, "HF_HOME": folder}
            return variables | {"HF_ENDPOINT": hub.address, "HF_TOKEN": "", "SPECPAIR_CATALOGUE": str(catalogue)}

        shared = python("-m", "verifier_server", "-hf", "u/big", "--context", "512", "--port", "0", "--share")
        with terminal(shared, 100, **home("box")) as box:
            command, link = box.wait_for(r"(drafter join) (specpair://\S+)\n").groups()
            joining = python("-m", "drafter_client", command.split()[1], link)  # while the model is read
            with terminal(joining, 100, **home("laptop")) as laptop:
                laptop.wait_for(r"draft model u/small, [\d.]+ MB, MIT: fetch\? \[Y/n\]")
                laptop.type("\r")
                assert laptop.wait() == 0, laptop.text
                check(laptop, 1000)  # lines of tune are wrapped by the terminal
                assert re.search(r"certificate matches · joined as .* · key in .*hosts.toml \(0600\)\n", laptop.text)
                assert re.search(r"target big-q8_0 · round trip \d+\.\d ms\n", laptop.text, re.IGNORECASE)
                assert re.search(r"(: kept|no draft model helps here: the target alone)\n$", laptop.text)
            writing = python("-m", "drafter_client", "--prompt", "def main():", "--max-tokens", "8")
            with terminal(writing, 100, **home("laptop")) as laptop:
                assert laptop.wait() == 0, laptop.text
                assert "8 tokens" in laptop.text
            with terminal(joining, 100, **home("second")) as second:
                assert second.wait() == 1 and "this link is not open: it was used already" in second.text
            box.type("\x03")
            assert box.wait() == 0, box.text
            check(box, 110)  # a warning is longer than the terminal
