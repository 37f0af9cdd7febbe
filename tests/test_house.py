"""The layout of the code: imports run downwards, in no circle; libraries are used by their public names."""

import ast
import re
from collections.abc import Iterator, Set
from contextlib import suppress
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.paths import PACKAGES, ROOT

# Each package may import itself and those named behind it.
BELOW: dict[str, set[str]] = {
    "lab": {"backends", "drafter_client", "gateway", "models", "specpair", "verifier_server", "tests"},
    "verifier_server": {"backends", "gateway", "models", "specpair"},
    "drafter_client": {"backends", "gateway", "models", "specpair"},
    "gateway": {"backends", "models", "specpair"},
    "backends": {"models", "specpair"},
    "models": {"specpair"},
    "specpair": set(),
}
# The same for the packages in specpair/. All may import `options`, and the modules of specpair's own level but `core`.
SHARED = {
    "http_service": {"protocol", "command_line"},
    "drafters": {"engines", "grammar", "protocol", "speculation"},
    "corpus": {"child_processes", "drafters", "engines", "speculation"},
    "grammar": {"engines", "protocol", "speculation", "child_processes"},
    "engines": {"protocol", "speculation"},
    "protocol": {"speculation"},
    "speculation": set(),
    "command_line": {"protocol"},
    "child_processes": {"command_line"},
    "options": set(),
}
# The rooms of a package from the top floor to the ground; "" is the package's own level.
FLOORS = {
    "specpair/speculation": [["policy"], ["drafting"], ["acceptance"], ["sampling"]],
    "gateway": [["router"], ["anthropic_api"], ["openai_api"]],
    "models": [["commands"], ["training"], ["hub"]],
    "verifier_server": [["fronts"], ["api"], ["generation"], ["engine"]],
    "drafter_client": [["cli"], ["chat"], ["serve", "trace"], ["display"], ["modes"], ["generation"], ["http"]],
    "backends": [["torch", "trial"], ["llama_cpp", "neuron_legacy"]],
    "lab": [["benchmarks"], ["bench", "simulator"], ["report"], ["reports"]],
}
# Private names that tests may use.
NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}  # documented, and private in name only
LIBRARIES = {
    "_exit",  # of os: ends a forked process without what pytest would do at its end
    "_dynamo",  # of torch: its settings that make a new compilation an error
    "_BACKENDS",  # of torch, and the next two: a compiler as that of NeuronCores is registered and taken back
    "_COMPILER_FNS",
    "_disable_current_modes",
    "_get_classes",  # of mlx_lm: the model classes of a family
}
HOOKS = {
    "_clear",
    "_copy",
    "_extend_top_logits",
    "_forward",
    "_keep",
    "_release",
}  # what an engine fills in of `Backend`
PRIVATE = re.compile(r"(\w+\.)*(?P<name>_[A-Za-z]\w*)")
FRAMEWORKS = {
    "click",
    "fastapi",
    "httpcore",
    "httptools",
    "httpx",
    "huggingface_hub",
    "pydantic",
    "starlette",
    "uvicorn",
}


def modules(package: str) -> dict[str, Path]:
    """Paths by dotted names."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


ALL = {name: path for package in PACKAGES for name, path in modules(package).items()}


@cache
def imports(path: Path) -> Set[str]:
    """Names of our modules that a module imports, those for the type checker among them."""
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in ALL else node.module


def room(name: str, package: str) -> str | None:
    """The folder of a module in `package`, from there on: empty for the package's own level. None: it is elsewhere."""
    folder = ALL[name].relative_to(ROOT).parent
    return "/".join(folder.relative_to(package).parts) if folder.is_relative_to(package) else None


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_lies_below(package: str) -> None:
    others = set(PACKAGES) | {"tests", "examples"}
    allowed = BELOW[package] | {package}
    wrong = [
        f"{name} imports {target}"
        for name, path in modules(package).items()
        for target in imports(path)
        if target.split(".")[0] in others - allowed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", SHARED)
def test_shared_packages_import_only_what_lies_below(package: str) -> None:
    others = {*SHARED, "core"} - SHARED[package] - {package, "options"}
    wrong = [
        f"{name} imports {target}"
        for name, path in modules(f"specpair/{package}").items()
        for target in imports(path)
        if target.startswith("specpair.") and target.split(".")[1] in others
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", FLOORS)
def test_rooms_import_only_what_lies_below(package: str) -> None:
    floor = {each: number for number, rooms in enumerate(FLOORS[package]) for each in rooms}
    folders = {path.parent.relative_to(ROOT / package) for path in modules(package).values()}
    assert set(floor) == {folder.parts[0] for folder in folders if folder.parts}
    wrong = [
        f"{name} imports {target}"
        for name, path in modules(package).items()
        for target in imports(path)
        if target in ALL and (own := room(name, package)) and (other := room(target, package))
        if floor[other.split("/")[0]] < floor[own.split("/")[0]]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES)
def test_libraries_are_used_by_their_public_names(package: str) -> None:
    """But for engines, whose versions are pinned: a new release of a web framework must not break the services."""
    wrong = [
        f"{name}:{node.lineno}"
        for name, path in modules(package).items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr == "__self__")
        or (
            (isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in FRAMEWORKS)
            and PRIVATE.fullmatch(f"{node.module}.{node.names[0].name}")
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_no_circle_of_modules() -> None:
    graph = {
        name: {target for target in imports(path) if target in ALL and target != name} for name, path in ALL.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_the_engine_does_not_look_at_what_the_service_keeps_of_callers() -> None:
    """Owners, keys, quotas and usage are in `Session.lease`; the engine compares the session's client and scope."""
    wrong = []
    for path in modules("verifier_server/engine").values():
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        called = {node.func for node in nodes if isinstance(node, ast.Call)}
        wrong += [
            f"{path.name}:{node.lineno} reads `lease`"
            for node in nodes
            if isinstance(node, ast.Attribute) and node.attr == "lease" and node not in called
        ]
        wrong += [
            f"{path.name} imports {target}"
            for target in imports(path)
            if target.startswith(("specpair.http_service", "verifier_server.session_"))
        ]
    assert not wrong, "\n".join(wrong)


def test_tests_do_not_depend_on_measurements_or_on_each_other() -> None:
    """But for the tests of the measurements. What several test modules share stands in a module of its own."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {target}"
        for path in (ROOT / "tests").rglob("*.py")
        for target in imports(path)
        if (target.startswith("lab.benchmarks") and "benchmarks" not in path.parts)
        or (target.startswith("tests.") and target.rpartition(".")[2].startswith("test_"))
    ]
    assert not wrong, "\n".join(wrong)


def defined(tree: ast.AST) -> Iterator[str]:
    """The names that a module gives to functions, classes, variables and attributes of `self`."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def private_names(tree: ast.AST) -> Iterator[str]:
    """Private names that a test uses and that are not its own: attributes, imports, names as text, as
    `monkeypatch.setattr` takes them, and all of these in the code of child processes."""
    own = {*defined(tree), *NAMED_TUPLES, *LIBRARIES} - HOOKS
    for node in ast.walk(tree):
        used: list[str] = []
        match node:
            case ast.Attribute(value=ast.Name(id="self") | ast.Call(func=ast.Name(id="super")), attr=name):
                used = [name] if name not in HOOKS else []
            case ast.Attribute(attr=name):
                used = [name]
            case ast.ImportFrom(names=aliases):
                used = [alias.name for alias in aliases]
            case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called), args=arguments) if called in (
                "delattr",
                "getattr",
                "hasattr",
                "object",
                "setattr",
            ):
                used = [
                    each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)
                ]
            case ast.Constant(value=str(text)) if "\n" in text and "._" in text:
                with suppress(SyntaxError):  # else it is no code
                    yield from private_names(ast.parse(text))
        found = filter(None, map(PRIVATE.fullmatch, used))
        yield from (each[0] for each in found if each["name"] not in own)


def test_tests_leave_private_names_of_the_code_alone() -> None:
    """They see what its users see. A wait or a limit that tests set is a public constant; the rest is in LIBRARIES."""
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "tests").rglob("*.py")
        for name in private_names(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not wrong, "\n".join(wrong)
