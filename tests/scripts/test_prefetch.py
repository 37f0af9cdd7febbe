"""What backends/llama_cpp/build.cmake changes in llama.cpp's source, which is a few lines here."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed"),
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86-64 only"),
]

INCLUDED = Path(__file__).resolve().parents[2] / "backends" / "llama_cpp" / "build.cmake"
LOADS = ["load<V>(A + lda * (ii + i) + l)", *(f"load(A + lda * (ii + {row}) + l)" for row in range(4))]
AHEAD = [
    "__builtin_prefetch(A + lda * (ii + i + RM) + l, 0, 2)",
    *(f"__builtin_prefetch(A + lda * (ii + {row} + 4) + l, 0, 2)" for row in range(4)),
]
BEFORE = "a[0]; // ;;\n" + "".join(f" Av[i] = {load};\n" for load in LOADS)
AFTER = "a[0]; // ;;\n" + "".join(f" Av[i] = ({ahead}, {load});\n" for ahead, load in zip(AHEAD, LOADS, strict=True))


def _configured(folder: Path, line: str, *switches: str) -> tuple[str, str]:
    """What the line of the kernel is after CMake has run, and what CMake warned of."""
    kernel = folder / "ggml" / "src" / "ggml-cpu" / "llamafile" / "sgemm.cpp"
    kernel.parent.mkdir(parents=True, exist_ok=True)
    kernel.write_text(line, encoding="utf-8")
    project = "cmake_minimum_required(VERSION 3.14)\nproject(llama.cpp LANGUAGES NONE)\n"
    (folder / "CMakeLists.txt").write_text(project, encoding="utf-8")
    command = ["cmake", "-S", str(folder), "-B", str(folder / "build"), *switches]
    command.append(f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={INCLUDED}")
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return kernel.read_text(encoding="utf-8"), ran.stderr


def test_the_next_tile_is_prefetched_and_all_else_stays(tmp_path: Path) -> None:
    text, warned = _configured(tmp_path, BEFORE)
    assert text == AFTER and not warned
    again, warned = _configured(tmp_path, text)
    assert again == text and not warned, "configured twice"


def test_another_kernel_is_compiled_as_it_is_with_a_warning(tmp_path: Path) -> None:
    text, warned = _configured(tmp_path, "load(B);\n")
    assert text == "load(B);\n" and warned.count("is not as expected") == len(LOADS)


def test_it_can_be_left_out(tmp_path: Path) -> None:
    text, warned = _configured(tmp_path, BEFORE, "-DSPECPAIR_PREFETCH=OFF")
    assert text == BEFORE and not warned
    text, warned = _configured(tmp_path, AFTER, "-DSPECPAIR_PREFETCH=OFF")
    assert text == BEFORE and not warned, "also of a source that was prefetching"
