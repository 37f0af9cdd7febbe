"""Judges drafts in vLLM's workers by our strategies, with the same result as engines that return logits.

vLLM's sampler and its rejection sampler are replaced after the model is loaded. So the shared noise of `coupled` is
applied where the logits are, and what vLLM would have drawn by itself is never computed.
"""

import logging
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import LogprobsTensors, SamplerOutput

from backends.hugging_face import read_vocabulary
from backends.torch.top_logits import select_top_logits
from specpair.engines.backend import Rows
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar.of_text import prepare_grammars, processors_of
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.acceptance.judge import Rule, judge
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import chain
from specpair.speculation.sampling.distribution import TokenLogprobs, token_logprobs
from specpair.speculation.sampling.row_changes import ProcessedRows, ProcessorChain
from specpair.speculation.sampling.sampling import Sampling, top_logits_spec
from verifier_server.engine.vllm.plugins import KEY, NO_TOKEN

_log = logging.getLogger("vllm.specpair")


class JudgingWorker:
    """A mixin of vLLM's worker class. vLLM calls its methods by name."""

    model_runner: Any

    def specpair_judge(self, folder: str, vocabulary_size: int) -> None:
        """Judge by our strategies from now on. `folder`: of the model, whose vocabulary grammars need."""
        runner, vocabulary = self.model_runner, read_vocabulary(Path(folder), vocabulary_size)
        prepare_grammars(vocabulary, tries=False)  # the verifier has tried them
        judging = Judging(runner, vocabulary)
        runner.sampler.forward = partial(judging.sampled, runner.sampler.forward)
        if hasattr(runner, "rejection_sampler"):  # the last stage of a pipeline has it
            runner.rejection_sampler.forward = judging.judged
        if runner.speculative_config.method == "custom_class" and not runner.model_config.has_inner_state:
            runner.execute_model = partial(_executed, runner, runner.speculative_config, runner.execute_model)


def _executed(runner: Any, speculation: Any, usual: Any, planned: SchedulerOutput, *more: Any, **named: Any) -> Any:
    """Run a step. Without drafts, run vLLM's faster step without speculation.

    Not for models with a state beside the KV cache: vLLM counts the tokens in it with speculation only. Nor where vLLM
    drafts by itself, which it does after each step with speculation.
    """
    runner.speculative_config = speculation if planned.scheduled_spec_decode_tokens else None
    return usual(planned, *more, **named)


class _Text(NamedTuple):
    """How to judge a request's tokens, and which log probabilities to report."""

    rule: Rule
    processors: ProcessorChain | None  # what changes its rows before
    likeliest: int | None  # of how many tokens the log probabilities are told; None: of none
    plain: bool  # whether without a draft, its next token is the one with the greatest logit, and nothing else is told


class Judging:
    """Replaces both samplers of a model runner."""

    def __init__(self, runner: Any, vocabulary: Vocabulary) -> None:
        self._runner, self._vocabulary, self._size = runner, vocabulary, vocabulary.size
        self._texts: dict[str, _Text] = {}  # by request

    def sampled(self, usual: Any, logits: torch.Tensor, *arguments: Any, **named: Any) -> SamplerOutput:
        """A token for each text. `usual`: vLLM's sampler, for its dry runs without a request."""
        texts = self._runner.input_batch.num_reqs
        if not texts:
            return usual(logits, *arguments, **named)
        if (likeliest := self._likeliest(logits, texts)) is not None:
            return SamplerOutput(likeliest, logprobs_tensors=None)
        return self._output(logits, [[]] * texts)

    def judged(self, metadata: Any, _probs: Any, logits: torch.Tensor, *_: Any, **__: Any) -> SamplerOutput:
        """For each text its accepted draft tokens, and one token more."""
        ids, ends = metadata.draft_token_ids.tolist(), accumulate(metadata.num_draft_tokens, initial=0)
        return self._output(logits, [ids[begin:end] for begin, end in pairwise(ends)])

    def _likeliest(self, logits: torch.Tensor, texts: int) -> torch.Tensor | None:
        """The result of `_output` for texts without drafts, computed at once; None: not possible in this step."""
        if logits.device.type != "cpu" or not all(self._text(name).plain for name in self._names(texts)):
            return None
        rows = self._numbers(logits)
        ids = rows.argmax(axis=1)
        if not np.isfinite(rows[np.arange(texts), ids]).all():
            return None  # which text it is will be told
        return torch.from_numpy(ids.astype(np.int32)[:, None])

    def _output(self, logits: torch.Tensor, drafts: Sequence[Sequence[int]]) -> SamplerOutput:
        texts = [self._text(name) for name in self._names(len(drafts))]
        tokens: list[list[int]] = []
        told: list[list[TokenLogprobs]] = [[]] * len(texts)
        for at, (text, draft, rows) in enumerate(zip(texts, drafts, self._rows(logits, texts, drafts), strict=True)):
            try:
                judged = self._judged(at, text, draft, rows)
                if text.likeliest is not None:
                    rated = zip(rows, judged, strict=False)
                    told[at] = [token_logprobs(row, token, text.likeliest) for row, token in rated]
                tokens.append(judged)
            except (ValueError, InvalidRequest) as error:  # NaN, or a grammar that cannot be followed any further
                _log.error("a text failed: %s", error)
                tokens.append([])  # the scheduler ends it, and others are intact
        # vLLM takes a width of 1 as a token for each text, without looking for placeholders, which takes it longer.
        width = max(map(len, tokens)) if all(tokens) else 2 + max(map(len, drafts))
        table = [each + [NO_TOKEN] * (width - len(each)) for each in tokens]
        return SamplerOutput(
            torch.tensor(table, dtype=torch.int32, device=logits.device),
            logprobs_tensors=logprobs_table(told, width) if any(told) else None,
        )

    def _judged(self, at: int, text: _Text, draft: Sequence[int], rows: Rows) -> list[int]:
        """The tokens of the text at this index of the batch."""
        batch = self._runner.input_batch
        judged: Any = rows
        position = int(batch.num_tokens_no_spec[at])
        if text.processors is not None:
            text.processors.commit(batch.token_ids_cpu[at, :position].tolist())
            judged = ProcessedRows(text.processors, rows, draft)
        return [ruling.token for ruling in judge(chain(draft), judged, text.rule, position, self._vocabulary.ends)]

    def _rows(self, logits: torch.Tensor, texts: Sequence[_Text], drafts: Sequence[Sequence[int]]) -> Sequence[Rows]:
        """The rows of logits of each text, one more than it has draft tokens."""
        firsts = list(accumulate((1 + len(draft) for draft in drafts), initial=0))
        if logits.device.type == "cpu":
            whole = self._numbers(logits)
            return [whole[first:end] for first, end in pairwise(firsts)]
        # Texts with fewer draft tokens are padded with rows of others, which nobody looks at.
        at = torch.tensor(firsts[:-1])[:, None] + torch.arange(1 + max(map(len, drafts)))[None, :]
        blocks = logits[at.clamp(max=len(logits) - 1).to(logits.device)]
        wanted = [
            top_logits_spec(
                text.rule.sampling, self._size, whole=text.processors is not None or text.likeliest is not None
            )
            for text in texts
        ]
        return select_top_logits(blocks, wanted, [(text, slice(0, 1 + len(each))) for text, each in enumerate(drafts)])

    def _numbers(self, logits: torch.Tensor) -> NDArray[np.float32]:
        """The logits of tokens of the vocabulary, where the device is the CPU."""
        numbers: NDArray[np.float32] = logits[:, : self._size].to(torch.float32).numpy()
        return numbers

    def _names(self, texts: int) -> list[str]:
        """The requests of a step."""
        names: list[str] = self._runner.input_batch.req_ids[:texts]
        return names

    def _text(self, name: str) -> _Text:
        """The text of a request."""
        if name not in self._texts:
            known = self._runner.requests
            if len(self._texts) > 2 * len(known):
                self._texts = {each: text for each, text in self._texts.items() if each in known}
            params = known[name].sampling_params
            strategy, sampling, threshold, prompt_len = params.extra_args[KEY]["rule"]
            rule = Rule(Strategy(strategy), Sampling(**sampling), threshold)
            processors = processors_of(rule.sampling, self._vocabulary, prompt_len)
            plain = rule.sampling.greedy and processors is None and params.logprobs is None
            self._texts[name] = _Text(rule, processors, params.logprobs, plain)
        return self._texts[name]


def logprobs_table(told: Sequence[Sequence[TokenLogprobs]], width: int) -> LogprobsTensors:
    """Log probabilities of the tokens of each text in vLLM's table of them: a line for each of `width` tokens.

    The token comes first, then the likeliest ones; the rest of a line is `NO_TOKEN`.
    """
    columns = 1 + max(len(each.top) for text in told for each in text)
    ids = torch.full((len(told) * width, columns), NO_TOKEN, dtype=torch.int32)
    values = torch.zeros(ids.shape, dtype=torch.float32)
    for at, text in enumerate(told):
        for line, each in enumerate(text, at * width):
            pairs = [(each.token, each.logprob), *each.top]
            ids[line, : len(pairs)] = torch.tensor([token for token, _ in pairs], dtype=torch.int32)
            values[line, : len(pairs)] = torch.tensor([value for _, value in pairs])
    return LogprobsTensors(ids, values, torch.zeros(len(ids), dtype=torch.int32))


class NoProposer:
    """A proposer without draft tokens."""

    def __init__(self, vllm_config: Any) -> None:
        """Ignore the configuration."""

    def load_model(self, *arguments: Any, **named: Any) -> None:
        """There is no model."""

    def propose(self, sampled: Sequence[Any], *arguments: Any, **named: Any) -> list[list[int]]:
        """No draft tokens for every text."""
        return [[] for _ in sampled]
