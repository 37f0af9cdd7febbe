"""Parses a model's name, `user/repo` or `user/repo:tag`, and chooses its files in a repository.

The files are chosen as llama.cpp's `-hf` does: one name means the same to both."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from models.errors import BadName, NoMatch
from specpair.options.option import option

_WORD = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_]|[.-](?![.-])){0,95}(?<![.-])")  # as the hub allows user and repository
_TAG = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
USUAL = ("Q4_K_M", "Q8_0")  # the tags of a name without one, in this order
HEADS = ("mtp", "eagle3", "dflash", "dspark")  # kinds of heads that draft for their target, the usual one first
_PARTS_OF_OTHERS = ("mmproj", "imatrix")  # in the names of files that are no model: projectors of images, statistics
_SPLIT = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.(?:gguf|safetensors)", re.IGNORECASE)
_BESIDE_WEIGHTS = (".json", ".jinja", "tokenizer.model", "merges.txt", "vocab.txt")  # endings of their names
_QUANTIZATION = re.compile(r"(?<![A-Za-z0-9])(?:UD-)?(?:I?Q|TQ|BF|F|MXFP|NVFP)\d+(?:_[A-Za-z0-9]+)*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model on the hub. `tag`: one of the repository's models; None: its default."""

    repository: str
    tag: str | None = None

    def __str__(self) -> str:
        return self.repository if self.tag is None else f"{self.repository}:{self.tag}"


def parse_name(text: str) -> ModelName:
    """The name that a user wrote. Raises BadName."""
    repository, colon, tag = text.strip().partition(":")
    words = repository.split("/")
    if len(words) != 2:
        raise BadName(
            f"{text!r} is not the name of a model: write user/repo or user/repo:tag, as org/model-GGUF:Q4_K_M"
        )
    for word, what in zip(words, ("user", "repository"), strict=True):
        if not _WORD.fullmatch(word):
            raise BadName(
                f"{text!r} is not the name of a model: its {what} is {word!r}, and a {what} has letters, digits, _, "
                "and single . or - between them, 96 at most"
            )
    if colon and not _TAG.fullmatch(tag):
        raise BadName(f"{text!r} is not the name of a model: its tag is {tag!r}, write one such as Q4_K_M, or no colon")
    return ModelName(repository, tag or None)


@dataclass(frozen=True, kw_only=True)
class HubOptions:
    """The option that names a model on the hub. Both ends make their settings from it, with `like`."""

    hf: str | None = option(
        None,
        "model on Hugging Face, as user/repo or user/repo:Q8_0; downloaded once into the cache",
        check=parse_name,
        group="model",
        placeholder="NAME",
        short="-hf",
    )


def choose(name: ModelName, paths: Sequence[str]) -> list[str]:
    """The files of the model of that name, the one to load first.

    `paths`: all files of the repository, in the hub's order.

    Raises NoMatch, which lists the tags that there are.
    """
    firsts = models_among(paths)
    found = _found(name.tag, firsts) if name.tag else next(filter(None, (_found(tag, firsts) for tag in USUAL)), None)
    if found is None and name.tag is None and firsts:
        found = firsts[0]
    if found is None:
        raise _no_match(name, firsts, paths)
    return with_its_parts(found, paths)


def choose_folder(name: ModelName, paths: Sequence[str]) -> list[str]:
    """The files of the model of that name in safetensors, for an engine that reads folders: config.json, then others.

    Empty: the repository has none, or the name has a tag, which means a GGUF file. Raises NoMatch if a part is missing.
    """
    root = [path for path in paths if "/" not in path]
    weights = [path for path in root if path.endswith(".safetensors")]
    weights = [path for path in weights if path.startswith("model")] or weights  # not what is there in two layouts
    if name.tag is not None or not weights or "config.json" not in root:
        return []
    with_its_parts(weights[0], paths)
    others = (path for path in root if path.endswith(_BESIDE_WEIGHTS) and path != "config.json")
    templates = (path for path in paths if path.startswith("additional_chat_templates/"))
    return ["config.json", *others, *templates, *weights]


def choose_head(name: ModelName, paths: Sequence[str], kind: str = HEADS[0]) -> list[str]:
    """The files of a head that drafts for the model of that name, the one to load first; empty: there is none.

    The head has a file of its own, in the model's folder or in one above it. Of several heads, the one in the nearest
    folder is chosen; then the one of the name's tag; then the one whose numbers have the most similar width.

    `paths`: all files of the repository, in the hub's order.
    `kind`: of `HEADS`.
    """
    try:
        model = choose(name, paths)[0]
    except NoMatch:  # the repository has only a head of this tag
        model = ""
    folders, there = model.split("/")[:-1], set(paths)
    bits, exact = _bits(name.tag or tag_of(model)), f"-{name.tag}.".upper()

    def distance(path: str) -> tuple[int, bool, int]:
        return -path.count("/"), exact not in path.upper(), abs(_bits(tag_of(path)) - bits)

    found = [
        path
        for path in _firsts(paths)
        if head_kind(path) == kind
        and path.split("/")[:-1] == folders[: path.count("/")]
        and there.issuperset(parts_of(path))
    ]
    return parts_of(min(found, key=distance)) if found else []


def head_kind(path: str) -> str | None:
    """The kind of head that a file's name states, as `mtp-model-Q8_0.gguf` does; None: it is no file of a head."""
    file = path.rpartition("/")[2]  # in lower case only, as llama.cpp has it: model-MTP-Q8_0.gguf is a model
    return next((kind for kind in HEADS if f"{kind}-" in file), None)


def models_among(paths: Iterable[str]) -> list[str]:
    """The files among `paths` that are a model, or the first part of one."""
    firsts = (path for path in _firsts(paths) if head_kind(path) is None)
    return [path for path in firsts if not any(word in path.rpartition("/")[2].lower() for word in _PARTS_OF_OTHERS)]


def _firsts(paths: Iterable[str]) -> Iterator[str]:
    """The GGUF files among `paths`, of split ones the first part."""
    for path in paths:
        split = _SPLIT.fullmatch(path)
        if path.lower().endswith(".gguf") and (split is None or int(split["number"]) == 1):
            yield path


def tags(paths: Iterable[str]) -> list[str]:
    """The tags that name the models among `paths`, each once."""
    return list(dict.fromkeys(map(tag_of, models_among(paths))))


def _found(tag: str, firsts: Sequence[str]) -> str | None:
    pattern = re.compile(re.escape(tag) + "[.-]", re.IGNORECASE)
    return next(filter(pattern.search, firsts), None)


def with_its_parts(path: str, paths: Sequence[str]) -> list[str]:
    """The file `path`, with the other parts of a split one. Raises NoMatch if one is missing."""
    parts, there = parts_of(path), set(paths)
    missing = [part for part in parts if part not in there] if len(parts) > 1 else []
    if missing:
        raise NoMatch(f"{path} is split, and the repository lacks {', '.join(missing)}: choose another tag", ())
    return parts


def parts_of(path: str) -> list[str]:
    """The names of all files of the model that `path` belongs to; of a split model, its parts in order."""
    split = _SPLIT.fullmatch(path)
    if split is None:
        return [path]
    ending = path[len(split["stem"]) + len("-00001") :]
    return [f"{split['stem']}-{number:05}{ending}" for number in range(1, int(split["count"]) + 1)]


def tag_of(path: str) -> str:
    """The tag that names a model by its first file."""
    split = _SPLIT.fullmatch(path)
    stem = (split["stem"] if split else path[: -len(".gguf")]).rpartition("/")[2]
    named = _QUANTIZATION.findall(stem)
    return named[-1] if named else re.split("[.-]", stem)[-1]


def _bits(tag: str) -> int:
    """How many bits a number has in files of a tag; 0: the tag does not say."""
    stated = re.search(r"\d+", tag)
    return int(stated[0]) if stated else 0


def _no_match(name: ModelName, firsts: Sequence[str], paths: Sequence[str]) -> NoMatch:
    there = tags(firsts)
    if there:
        return NoMatch(f"{name.repository} has no model {name.tag}, but these: {', '.join(there)}", tuple(there))
    if choose_folder(ModelName(name.repository), paths):
        taken = f"leave :{name.tag} out" if name.tag else "torch and mlx read them (--backend torch)"
        return NoMatch(f"{name.repository} has a folder of safetensors, and no GGUF file: {taken}", ())
    return NoMatch(f"{name.repository} has no GGUF file of a model: name a repository that does, often …-GGUF", ())
