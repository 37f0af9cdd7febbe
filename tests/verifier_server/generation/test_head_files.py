"""Server-side drafting with a head from a file of its own."""

from contextlib import closing
from pathlib import Path

import pytest

from models.heads import FILE_KINDS, make_head_file, make_head_model
from tests.verifier_server.conftest import LiveServer
from verifier_server.settings import Settings, SettingsError, from_flags

BODY = {"prompt_ids": list(range(5, 45)), "max_tokens": 40}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("heads")
    for kind in FILE_KINDS:
        make_head_file(kind, path / f"{kind}.gguf")
    make_head_model("glm4moe", path / "glm4moe.gguf")
    return path


@pytest.mark.parametrize(("kind", "name"), [("eagle3", "EAGLE-3 head"), ("dflash", "DFlash head")])
def test_the_text_is_the_target_s_own(folder: Path, kind: str, name: str) -> None:
    settings = Settings(model=folder / "llama.gguf", context=128, threads=1, draft_head=folder / f"{kind}.gguf")
    with closing(LiveServer(settings, None)) as server:
        server.wait_until_ready()
        plain, drafted = (server.post("/generate", {**BODY, "mode": mode}) for mode in ("target", "fused"))
        assert drafted["token_ids"] == plain["token_ids"]
        assert server.http.get("/model").json()["draft_model"] == name


def test_a_file_that_does_not_fit_is_named_by_the_setting_s_flag(folder: Path) -> None:
    flags = [f"--model={folder}/llama.gguf", f"--draft-head={folder}/glm4moe.gguf"]
    with closing(LiveServer(from_flags(flags, {})[0], None)) as server:
        server.http.get("/health")
        server.service.loader.wait(60.0)
        failure = server.service.loader.failure
        assert failure is not None and failure.startswith("--draft-head: ") and "its architecture is glm4moe" in failure


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--draft=off"], "draft is off: leave one of the two out"),
        (["--draft=model"], "draft is model: leave one of the two out"),
        (["--backend=scripted"], "the engine scripted takes no file with a head: leave it out"),
    ],
)
def test_settings_that_allow_no_head_are_refused(folder: Path, flags: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=f"^--draft-head: {message}"):
        from_flags([f"--draft-head={folder}/eagle3.gguf", *flags], {})
