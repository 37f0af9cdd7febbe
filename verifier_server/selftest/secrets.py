"""Takes secrets out of what a report says: a vendor's program or library may print command lines and settings.

Secrets that are known are always found. Others are found by the names before them, and too much is hidden rather than
too little.
"""

import re
from collections.abc import Callable, Iterable

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
