"""Who drafts for a text, and how much: what its request says, or as the service was started."""

from dataclasses import replace

from drafter_client.options import Mode, Options
from drafter_client.pairing import Paired
from gateway.openai_api.texts import TextRequest
from specpair.protocol.errors import ModeUnavailable

_MODES = {"off": Mode.TARGET, "auto": Mode.AUTO, "remote": Mode.REMOTE, "fused": Mode.FUSED}  # as requests name them
_MISSING = {
    Mode.TARGET: "its verifier does not offer it: send auto",
    Mode.REMOTE: "this service has no draft model, as it was started for other modes: start it with --mode auto, or "
    "send auto, fused or off",
    Mode.FUSED: "its verifier has no draft model: start that with VERIFIER_DRAFT_MODEL (or with "
    "VERIFIER_DRAFT_BACKEND=ngram), send a prediction of the text, or send auto, remote or off",
}


def drafted(options: Options, text: TextRequest, paired: Paired) -> Options:
    """The options of a service for the draft tokens of a text. Raises ModeUnavailable for what cannot be had."""
    asked, draft_n, predicted = text.speculative.mode, text.speculative.draft_n, text.prediction is not None
    modes = paired.modes(predicted=predicted)
    if asked is None:
        mode = paired.without_lost_draft_model(options.mode, predicted=predicted)
    elif (mode := _MODES[asked]) not in (*modes, Mode.AUTO):
        raise ModeUnavailable(f"speculative.mode: {asked}: {_MISSING[mode]}", param="speculative.mode")
    options = replace(options, mode=mode, prediction=None if mode is Mode.TARGET else text.prediction)
    if draft_n is None:
        return options
    options = replace(options, draft_n=draft_n)
    if options.settled_mode(modes) is Mode.TARGET:
        raise ModeUnavailable(
            f"speculative.draft_n: {draft_n}: neither this service nor its verifier drafts for this text: leave it "
            "out, or send a mode that drafts",
            param="speculative.draft_n",
        )
    return options
