"""The latest texts of each verifier, so that a prompt that begins like one is sent without the ids that both share."""

import threading
from collections import OrderedDict

from drafter_client.http.addresses import VerifierAddress
from drafter_client.http.text_session import TextSession
from specpair.engines.kept_texts import shared_length
from specpair.protocol.errors import InvalidRequest, UnknownPrefix
from specpair.protocol.prefix import PromptPrefix

LEAST = 64  # ids that must be saved: to name a text takes some 110 bytes
MOST = 2**18  # ids of all texts together, unless the latest alone has more


class SentTexts:
    """The texts of one key, by verifier and session. May be used from any thread."""

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[VerifierAddress, str], tuple[TextSession, str]] = OrderedDict()  # with the salt
        self._taking: set[VerifierAddress] = set()  # verifiers that take prefixes
        self._changing = threading.Lock()

    def serves(self, address: VerifierAddress, *, prefixes: bool) -> None:
        """Note whether a verifier takes prefixes."""
        with self._changing:
            (self._taking.add if prefixes else self._taking.discard)(address)

    def note(self, address: VerifierAddress, text: TextSession, salt: str) -> None:
        """Note that a verifier holds a text. Tokens that are committed later count, too."""
        with self._changing:
            key = address, text.session_id
            self._texts[key] = text, salt
            self._texts.move_to_end(key)
            while len(self._texts) > 1 and sum(len(each.known) for each, _ in self._texts.values()) > MOST:
                self._texts.popitem(last=False)

    def prefix(self, address: VerifierAddress, prompt: list[int], salt: str) -> PromptPrefix | None:
        """How a prompt begins, if a text that the verifier holds saves enough."""
        with self._changing:
            held = list(self._texts.items()) if address in self._taking else []
        best, named = LEAST, ""
        for (place, session_id), (text, of_salt) in held:
            most = min(len(text.known), len(prompt))
            # The token behind `best` is compared first: most texts differ there or before.
            if (place, of_salt) != (address, salt) or most <= best or text.known[best] != prompt[best]:
                continue
            common = shared_length(text.known, prompt, most)
            if common > best:
                best, named = common, session_id
        return PromptPrefix.of(named, prompt[:best]) if named else None

    def refused(self, address: VerifierAddress, prefix: PromptPrefix | None, error: Exception) -> bool:
        """Whether `error` refuses the prefix alone, so that the whole prompt is to be sent. Then forgets it."""
        if prefix is None:
            return False
        with self._changing:
            if isinstance(error, UnknownPrefix):
                self._texts.pop((address, prefix.session_id), None)
                return True
            if isinstance(error, InvalidRequest) and error.details.get("param") == "prefix":
                self._taking.discard(address)  # an older verifier, as behind a router
                return True
        return False
