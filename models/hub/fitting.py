"""Whether a model fits onto the disk before it is fetched, and which others of its repository would fit."""

import shutil
from collections.abc import Sequence

from models.hub.cache import HubFile, Listing, RepositoryCache
from models.hub.choice import models_among, tag_of, with_its_parts
from models.hub.errors import DiskFull, NoMatch
from specpair.counted import sized

_TOLD = 3  # models that an error names, at most


def check_disk(missing: Sequence[HubFile], listing: Listing, cached: RepositoryCache) -> None:
    """Raises DiskFull if the rest of the files does not fit on the disk."""
    begun = sum(min(part.stat().st_size, file.size) for file in missing if (part := cached.part(file)).exists())
    needed = sum(file.size for file in missing) - begun
    there = next(folder for folder in (cached.folder, *cached.folder.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise DiskFull(
            f"{listing.repository}: {sized(needed)} are to be fetched, and {there} has {sized(free)} of room: "
            f"{instead(listing, free)}free {sized(needed - free)}, or set HF_HOME to a folder on another disk",
            needed,
            free,
        )


def instead(listing: Listing, most: float) -> str:
    """Which of a repository's models have at most `most` bytes, the largest first, in words that other advice follows.

    Empty: none has, or they have no tags to choose by.
    """
    sizes: dict[str, int] = {}
    for first in models_among(listing.paths):
        try:
            parts = listing.chosen(with_its_parts(first, listing.paths))
        except NoMatch:  # a part is missing
            continue
        sizes.setdefault(tag_of(first), sum(file.size for file in parts))  # a tag means the first that has it
    fitting = sorted((tag for tag in sizes if sizes[tag] <= most), key=lambda tag: -sizes[tag])[:_TOLD]
    if not fitting:
        return ""
    told = " and ".join(f"{tag} ({sized(sizes[tag])})" for tag in fitting)
    return f"{told} would fit: write {listing.repository}:{fitting[0]}; "
