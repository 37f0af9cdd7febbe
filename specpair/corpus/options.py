"""The option of a draft corpus, which both ends have."""

from dataclasses import dataclass
from pathlib import Path

from specpair.corpus.draft_corpus import paths_of
from specpair.options.option import option


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Flags, variables and keys are made from this field."""

    draft_corpus: tuple[Path, ...] = option(
        (),
        "files and folders of yours, as a repository, from which draft tokens are looked up, too: they are indexed in "
        "the background and stay on this machine; of several, with commas",
        usually="none",
        reads=paths_of,
        group="drafting",
        placeholder="PATH",
    )
