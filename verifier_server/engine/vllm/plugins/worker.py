"""Judges drafts in vLLM's workers by our strategies: the same tokens as on engines that hand out logits.

vLLM's sampler and its rejection sampler are replaced after the model is loaded. So the shared noise of `coupled` is
applied where the logits are, and what vLLM would have drawn by itself is never computed.
"""

import logging
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import torch
from vllm.v1.outputs import SamplerOutput

from backends.hugging_face.vocabulary import read_vocabulary
from backends.torch.top_logits import select_top_logits
from specpair.engines.backend import Rows, top_logits_spec
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar.of_text import prepare_grammars, processors_of
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.judge import Rule, judge
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import chain
from specpair.speculation.sampling.row_changes import ProcessedRows, ProcessorChain
from specpair.speculation.sampling.sampling import Sampling
from verifier_server.engine.vllm.plugins import KEY

_log = logging.getLogger("vllm.specpair")
_NONE = -1  # vLLM's placeholder behind the tokens of a text


class JudgingWorker:
    """vLLM adds it to the bases of its worker, whichever that is, and calls its methods by name."""

    model_runner: Any

    def specpair_judge(self, folder: str, vocabulary_size: int) -> None:
        """Judge by our strategies from now on. `folder`: of the model, whose vocabulary grammars need."""
        runner, vocabulary = self.model_runner, read_vocabulary(Path(folder), vocabulary_size)
        prepare_grammars(vocabulary)
        judging = Judging(runner, vocabulary)
        runner.sampler.forward = partial(judging.sampled, runner.sampler.forward)
        if hasattr(runner, "rejection_sampler"):  # the last stage of a pipeline has it
            runner.rejection_sampler.forward = judging.judged


class Judging:
    """Stands in for both samplers of a model runner."""

    def __init__(self, runner: Any, vocabulary: Vocabulary) -> None:
        self._runner, self._vocabulary, self._size = runner, vocabulary, vocabulary.size
        self._rules: dict[str, tuple[Rule, ProcessorChain | None]] = {}  # by request

    def sampled(self, usual: Any, logits: torch.Tensor, *arguments: Any, **named: Any) -> SamplerOutput:
        """A token for each text. `usual`: vLLM's own, for the dry runs that it makes without a request."""
        texts = self._runner.input_batch.num_reqs
        if not texts:
            return usual(logits, *arguments, **named)
        return self._output(logits, [[]] * texts)

    def judged(self, metadata: Any, _probs: Any, logits: torch.Tensor, *_: Any, **__: Any) -> SamplerOutput:
        """For each text its accepted draft tokens, and one token more."""
        ids, ends = metadata.draft_token_ids.tolist(), accumulate(metadata.num_draft_tokens, initial=0)
        return self._output(logits, [ids[begin:end] for begin, end in pairwise(ends)])

    def _output(self, logits: torch.Tensor, drafts: Sequence[Sequence[int]]) -> SamplerOutput:
        batch = self._runner.input_batch
        rules = [self._rule(name) for name in batch.req_ids[: len(drafts)]]
        width, tokens = 2 + max(map(len, drafts)), []  # vLLM takes a width of 1 as a token for each
        for text, (draft, rows) in enumerate(zip(drafts, self._rows(logits, rules, drafts), strict=True)):
            (rule, processors), position = rules[text], int(batch.num_tokens_no_spec[text])
            judged: Any = rows
            try:
                if processors is not None:
                    processors.commit(batch.token_ids_cpu[text, :position].tolist())
                    judged = ProcessedRows(processors, rows, draft)
                rulings = judge(chain(draft), judged, rule, position, self._vocabulary.ends)
            except (ValueError, InvalidRequest) as error:  # NaN, or a grammar that cannot be followed any further
                _log.error("a text cannot go on: %s", error)
                rulings = []  # the scheduler ends it, and others are intact
            tokens.append([ruling.token for ruling in rulings] + [_NONE] * (width - len(rulings)))
        return SamplerOutput(torch.tensor(tokens, dtype=torch.int32, device=logits.device), logprobs_tensors=None)

    def _rows(self, logits: torch.Tensor, rules: Sequence[Any], drafts: Sequence[Sequence[int]]) -> Sequence[Rows]:
        """The rows of logits of each text, one more than it has draft tokens."""
        firsts = list(accumulate((1 + len(draft) for draft in drafts), initial=0))
        if logits.device.type == "cpu":
            whole = logits[:, : self._size].to(torch.float32).numpy()
            return [whole[first:end] for first, end in pairwise(firsts)]
        # Texts with fewer draft tokens are padded with rows of others, which nobody looks at.
        at = torch.tensor(firsts[:-1])[:, None] + torch.arange(1 + max(map(len, drafts)))[None, :]
        blocks = logits[at.clamp(max=len(logits) - 1).to(logits.device)]
        wanted = [
            top_logits_spec(rule.sampling, self._size, whole=processors is not None) for rule, processors in rules
        ]
        return select_top_logits(blocks, wanted, [(text, slice(0, 1 + len(each))) for text, each in enumerate(drafts)])

    def _rule(self, name: str) -> tuple[Rule, ProcessorChain | None]:
        """How the tokens of a request are judged, and what changes its rows before."""
        if name not in self._rules:
            known = self._runner.requests
            if len(self._rules) > 2 * len(known):
                self._rules = {each: rule for each, rule in self._rules.items() if each in known}
            strategy, sampling, threshold, prompt_len = known[name].sampling_params.extra_args[KEY]["rule"]
            rule = Rule(Strategy(strategy), Sampling(**sampling), threshold)
            self._rules[name] = rule, processors_of(rule.sampling, self._vocabulary, prompt_len)
        return self._rules[name]
