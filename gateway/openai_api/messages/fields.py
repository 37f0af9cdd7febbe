"""The table of fields that each kind of object in a request may have in addition to the fields that are used.

Which fields are used, the models in `requests` and `conversation` say. The reader of requests, the OpenAPI documents
and the reference page follow this table. Any other field is refused by name: to ignore it would give another text than
the one that was asked for.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

REFUSED = {  # what a request may ask for, and why it is refused
    "images, audio, files": "the model reads text alone",
    "tools that a server runs": "your program runs the tools: give functions",
    "two different values of one parameter, by two names": "the request does not say which one is meant",
    "a format, a schema or a grammar that cannot be forced": "the text would not keep to it",
    "any other parameter with a value": "to ignore it may give another text than the one that was asked for",
}
EMPTY: tuple[Any, ...] = (None, False, "", [], {})  # values that ask for nothing, whatever the field


V = TypeVar("V", str, tuple[Any, ...])


@dataclass(frozen=True, slots=True)
class FieldRules:
    """Fields that one kind of object may have beside those that are used."""

    # Taken with any value: they say something about the request, or about an earlier reply, not about the text.
    ignored: tuple[str, ...] = ()
    # Taken with these values (or null), which ask for nothing; with none of them: refused unless it is null.
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    # Hints: taken with any value, and named in the reply, but for these values, which ask for nothing.
    hints: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    also: Mapping[str, str] = field(default_factory=dict)  # other servers' names of fields that are used
    instead: Mapping[str, str] = field(default_factory=dict)  # the names here of fields that are refused
    advice: Mapping[str, str] = field(default_factory=dict)  # what to do in place of fields that are refused
    path: str = ""  # where such an object is in a request, for the names of hints


_OF_THE_SERVICE = (  # how the service should handle the request
    *("user", "metadata", "store", "service_tier", "safety_identifier", "priority", "request_id", "rid", "session_id"),
    *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "prompt_cache_isolation_key"),
    *("cache_prompt", "n_cache_reuse", "id_slot", "slot_id", "n_keep", "n_discard"),  # llama-server's
    *("timings_per_token", "return_progress", "return_token_strs", "perf_metrics_in_response", "tool_stream"),
    *("provider", "route", "trace", "ttl", "client_metadata", "user_id"),
    *("kv_transfer_params", "data_parallel_rank", "guided_decoding_backend", "extra_key"),  # vLLM's and SGLang's
    *("keep_alive", "num_ctx", "num_thread", "num_gpu", "main_gpu", "num_batch", "num_keep", "numa", "low_vram"),
    *("use_mmap", "use_mlock", "f16_kv", "context_length"),  # and above: Ollama's
)
_SWITCHED_OFF = (  # parameters of steps that are refused unless they are off
    *("repeat_last_n", "mirostat_tau", "mirostat_eta", "dynatemp_exponent", "xtc_threshold", "smoothing_curve"),
    *("dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"),
)


def _only(values: V, names: str) -> dict[str, V]:
    """Fields accepted with these values only; or fields that have another name here. `names`: with spaces between."""
    return dict.fromkeys(names.split(), values)


_TEXT = (
    _only((), "allowed_token_ids truncate_prompt_tokens prompt_logprobs lora_path")
    | _only((False,), "use_beam_search early_stopping include_stop_str_in_output no_stop_trim")
    | _only((False,), "return_tokens return_token_ids return_tokens_as_token_ids return_hidden_states")
    | _only((True,), "skip_special_tokens spaces_between_special_tokens do_sample")
    | _only((0,), "n_probs top_a min_keep dynatemp_range smoothing_factor no_repeat_ngram_size")
    | _only((0,), "mirostat mirostat_mode dry_multiplier xtc_probability epsilon_cutoff eta_cutoff")
    | _only((0, -1), "top_n_sigma t_max_predict_ms")
    | _only((1,), "length_penalty typical_p tfs_z repeat_penalty num_beams guidance_scale")
    | _only(([],), "stop_token_ids bad_words logits_processors lora samplers")
)
_BOTH = (  # chats and completions
    _only((), "audio web_search_options moderation")
    | _only(([],), "functions documents")
    | _only((False,), "parse_tool_calls continue_final_message")
    | {"add_generation_prompt": (True,), "search_parameters": ({"mode": "off"},)}
    | {"function_call": ("none", "auto"), "modalities": (["text"],), "chat_template": ("",)}
)
_ONE_TEXT = {"n": (1,), "modalities": (["text"],), "response_format": ({"type": "text"},)}  # in other APIs' words
_VERBOSITY = {"verbosity": ("medium",)}
# What a model has no use for, other providers' reports, and what to do where a prompt is too long.
_HINTS = _VERBOSITY | _only((), "usage models transforms draft_model stream_reasoning reasoning_split")
_HINTS |= _only((), "context_overflow_policy context_length_exceeded_behavior timeout num_retries")
_HINTS |= _only((), "drop_params custom_llm_provider cache prompt_mode incremental_output result_format")
_CHAT = _BOTH | {"suffix": ("",), "echo": (False,), "add_special_tokens": (False,)}
_COMPLETION = _BOTH | {
    "add_special_tokens": (True,),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "return_full_text": (False,),
}
_BUDGETS = _only("thinking_budget", "thinking_budget_tokens thinking_token_budget reasoning_budget")
_THINKING = _BUDGETS | {"enable_reasoning": "enable_thinking"}
# In a text without a chat template.
_THOUGHTS = _only((), "enable_thinking thinking think thinking_budget reasoning reasoning_effort chat_template_kwargs")
_THOUGHTS |= dict.fromkeys(_THINKING, ()) | {"include_reasoning": (True,)}
_ALSO = _only("max_tokens", "n_predict num_predict max_new_tokens max_output_tokens") | {
    "min_new_tokens": "min_tokens",
    "random_seed": "seed",
    "stop_sequences": "stop",
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
_INSTEAD = {
    "repeat_penalty": "repetition_penalty",
    "ebnf": "grammar",
    "format": "response_format",
    "thinking_mode": "enable_thinking",
    "speculative.n_max": "speculative.draft_n",
}
_ADVICE = dict.fromkeys(("options", "extra_body"), "send each of its members as a parameter of the request") | {
    "disable_reasoning": "send enable_thinking with the opposite value",
    "google": "send thinking_budget",
}
OF_THE_TEMPLATE = FieldRules(  # variables of a chat template that the service sets
    only={"messages": (), "tools": ([],), "add_generation_prompt": (True,), "continue_final_message": (False,)}
    | _only((), "bos_token eos_token chat_template")
)
_OF_A_REPLY = (  # what an earlier reply, sent back, says of itself
    *("id", "index", "object", "type", "status", "created", "created_at", "timestamp", "date", "model", "metadata"),
    *("finish_reason", "stop_reason", "logprobs", "usage", "token_ids", "annotations", "citations", "parsed"),
)
_NO_TEXT = dict.fromkeys(  # what other models see and hear
    ("image_url", "images", "input_audio", "video_url", "file", "file_id"), "the model reads text alone, leave it out"
)
_OF_A_PROVIDER = (  # what is there for one provider alone
    *("cache_control", "copilot_cache_control", "prompt_cache_breakpoint", "provider_specific_fields"),
    *("extra_content", "thought_signature", "signature"),
)
_ITEM = (*(name for name in _OF_A_REPLY if name != "type"), *_OF_A_PROVIDER, "phase", "namespace", "caller", "async")
_OF_THE_RESPONSE = tuple(name for name in _OF_THE_SERVICE if name not in ("metadata", "store"))
_CACHE = ("cache_control",)
_KEEP_THOUGHTS = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
_OF_AN_ANSWER = (
    "max_tokens",
    "stop",
    "stop_sequences",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "speculative",
)
_MESSAGES_REQUEST = FieldRules(
    (
        *_CACHE,
        *("metadata", "service_tier", "inference_geo", "speed", "user_profile_id", "workspace_id", "diagnostics"),
        *("betas", "anthropic_version", *_SWITCHED_OFF),
        *(name for name in _OF_THE_SERVICE if name not in ("metadata", "service_tier")),
    ),
    _TEXT | _ONE_TEXT | _only(({},), "container output_format") | _only(([],), "mcp_servers"),
    _HINTS | {"context_management": ({"edits": []}, _KEEP_THOUGHTS), "stream_options": ()},
    _THINKING | _only("max_tokens", "max_completion_tokens max_output_tokens") | {"stop": "stop_sequences"},
    _INSTEAD | dict.fromkeys(("response_format", "output_format", "format"), "output_config.format"),
    _ADVICE,
)

TABLE: dict[str, FieldRules] = {
    # Chats and completions.
    "ChatRequest": FieldRules(
        (*_OF_THE_SERVICE, *_SWITCHED_OFF),
        _TEXT | _CHAT,
        _HINTS,
        _ALSO | _THINKING,
        _INSTEAD,
        _ADVICE,
    ),
    "CompletionRequest": FieldRules(
        (*_OF_THE_SERVICE, *_SWITCHED_OFF, "parallel_tool_calls"),
        _TEXT | _COMPLETION,
        _HINTS | _THOUGHTS | {"separate_reasoning": (), "reasoning_format": ("none",)},
        _ALSO | {"max_completion_tokens": "max_tokens"},
        _INSTEAD,
        _ADVICE,
    ),
    "StreamOptions": FieldRules(("include_obfuscation",)),
    "Prediction": FieldRules(_OF_A_PROVIDER),
    "ResponseFormat": FieldRules(_OF_A_PROVIDER),
    "JsonSchemaFormat": FieldRules(_OF_A_PROVIDER),
    "StructuredOutputs": FieldRules(
        only=_only((False,), "disable_any_whitespace disable_fallback disable_additional_properties")
        | _only(("",), "whitespace_pattern structural_tag _backend")
    ),
    "Speculative": FieldRules(instead={"n_max": "draft_n"}),
    "ChatMessage": FieldRules(
        (
            *(*_OF_A_REPLY, *_OF_A_PROVIDER, "weight"),
            *("reasoning_details", "thinking_blocks", "reasoning_signature"),  # signed for the provider that wrote them
            *("opts", "_meta", "cycle", "context", "estimated_tokens"),  # an editor's own notes
        ),
        {"refusal": ("",), "function_call": ({},), "audio": (), "prefix": (False,), "partial": (False,)},
        advice=_NO_TEXT,
    ),
    "TextPart": FieldRules(
        (*(name for name in _OF_A_REPLY if name != "type"), *_OF_A_PROVIDER, "_meta"), advice=_NO_TEXT
    ),
    "ToolCall": FieldRules((*(name for name in _OF_A_REPLY if name not in ("id", "type")), *_OF_A_PROVIDER)),
    "Tool": FieldRules(_OF_A_PROVIDER),
    "TextFormat": FieldRules(_OF_A_PROVIDER),
    "FunctionDefinition": FieldRules((*_OF_A_PROVIDER, "eager_input_streaming"), also={"input_schema": "parameters"}),
    "NamedTool": FieldRules((*_OF_A_PROVIDER, "disable_parallel_tool_use")),
    "AllowedTools": FieldRules(_OF_A_PROVIDER),
    "Thinking": FieldRules(("display",), hints=_only((), "clear_thinking keep"), path="thinking"),
    "ReasoningOptions": FieldRules(
        only={"context": ("auto",), "mode": ("standard",)},
        hints=_only(("auto",), "summary generate_summary"),
        path="reasoning",
    ),
    "FunctionName": FieldRules(_OF_A_PROVIDER),
    "Function": FieldRules((*_OF_A_PROVIDER, "id", "index", "description", "strict", "parsed_arguments")),
    # Responses.
    "ResponseRequest": FieldRules(  # max_tool_calls: of hosted tools, of which none is taken
        (*_OF_THE_RESPONSE, *_SWITCHED_OFF, "stream_options", "max_tool_calls"),
        _TEXT
        | _ONE_TEXT
        | _only(({},), "background_options image prompt access_programs")
        | {"background": (False,), "conversation": ("",), "moderation": ()},
        _HINTS | {"truncation": ("disabled",), "context_management": ()},
        _THINKING | _only("max_output_tokens", "max_tokens max_completion_tokens"),
        _INSTEAD | {"messages": "input", "response_format": "text.format", "format": "text.format"},
        _ADVICE
        | {
            "background": "wait for the response, or read it as a stream, and leave background out",
            "conversation": "go on with previous_response_id, or send the whole conversation as input",
            "prompt": "send its text as instructions and input",
        },
    ),
    "ResponseText": FieldRules(hints=_VERBOSITY, path="text"),
    "ResponseTextFormat": FieldRules(_OF_A_PROVIDER),
    "InputMessage": FieldRules(_ITEM),
    "InputText": FieldRules(_ITEM, {"detail": ("auto",)}, advice=_NO_TEXT),
    "InputReasoning": FieldRules((*_ITEM, "encrypted_content")),
    "InputThoughts": FieldRules(_ITEM),
    "InputCall": FieldRules((*(name for name in _ITEM if name != "namespace"), "parsed_arguments")),
    "InputCustomCall": FieldRules(tuple(name for name in _ITEM if name != "namespace")),
    "InputCallOutput": FieldRules(tuple(name for name in _ITEM if name != "namespace")),
    "ItemReference": FieldRules(tuple(name for name in _ITEM if name != "id")),
    "ResponseTool": FieldRules(
        _OF_A_PROVIDER,
        {"defer_loading": (False,), "allowed_callers": (["direct"],), "output_schema": ({},), "async": (False,)},
    ),
    "ResponseNamespace": FieldRules(_OF_A_PROVIDER),
    # Anthropic's messages.
    "MessagesRequest": _MESSAGES_REQUEST,
    "CountRequest": replace(  # what the answer is made by does not change the prompt
        _MESSAGES_REQUEST,
        ignored=(*_MESSAGES_REQUEST.ignored, "max_completion_tokens", "max_output_tokens", *_OF_AN_ANSWER),
        also=_THINKING,
    ),
    "OutputConfig": FieldRules(only={"task_budget": ({},)}),
    "OutputFormat": FieldRules(),
    "TurnMessage": FieldRules(("id", *_CACHE)),
    "TextBlock": FieldRules(_CACHE, {"citations": ([],)}),
    "ThinkingBlock": FieldRules((*_CACHE, "signature")),
    "RedactedBlock": FieldRules((*_CACHE, "data")),
    "ToolUseBlock": FieldRules((*_CACHE, "caller", "toolset_name", "server_name")),
    "ToolResultBlock": FieldRules((*_CACHE, "toolset_name")),
    "HostedResultBlock": FieldRules((*_CACHE, "caller", "is_error")),
    "SearchResultBlock": FieldRules((*_CACHE, "citations")),
    "DocumentBlock": FieldRules((*_CACHE, "citations")),
    "DocumentText": FieldRules(),
    "CustomTool": FieldRules(
        (*_CACHE, "eager_input_streaming"),
        {"defer_loading": (False,), "allowed_callers": (["direct"],), "input_examples": ([],)},
        also={"parameters": "input_schema"},
    ),
    "CustomToolChoice": FieldRules(),
}


class Sorted(NamedTuple):
    """The fields of an object by what happens to them."""

    used: dict[str, Any]
    hints: list[str]
    refused: tuple[str, str] | None  # the first one, and why
    sent: dict[str, str]  # the names that were sent, of fields that have others here


def sorted_out(beside: FieldRules, given: Mapping[str, Any], used: Collection[str]) -> Sorted:
    """Sort the fields of an object. `used`: names of its model."""
    found, hints, sent, refused = dict[str, Any](), list[str](), dict[str, str](), list[tuple[str, str]]()
    for name, value in given.items():
        if name in used:
            found.setdefault(name, value)
            continue
        other = beside.also.get(name)
        if other is not None and ((wanted := given.get(other)) is None or _same(wanted, value)):
            found[other], sent[other] = value, name
        elif other is not None and isinstance(value, bool):  # the one value that is empty and yet says something
            refused.append((name, why_refused(beside, name)))
        elif not taken(beside, name, value):
            if name in beside.hints:
                hints.append(name)
            else:
                refused.append((name, why_refused(beside, name)))
    return Sorted(found, hints, next(iter(refused), None), sent)


def why_refused(beside: FieldRules, name: str) -> str:
    """What is wrong with a field that is refused, and what to do."""
    if name in beside.instead:
        return f"its name is {beside.instead[name]} here"
    if name in beside.also:
        return f"it is another name of {beside.also[name]}, which has another value: give one of them"
    if name in beside.advice:
        return f"not supported: {beside.advice[name]}"
    if name in beside.hints:
        return "it has no effect here: leave it out"
    if name not in beside.only:
        return "there is no such parameter"
    values = beside.only[name]
    return "not supported: leave it out" + (f", or send {' or '.join(map(json.dumps, values[:2]))}" if values else "")


def taken(beside: FieldRules, name: str, value: Any) -> bool:
    """Whether a field that is not used may be there with this value, and is no hint then."""
    if name in beside.ignored:
        return True
    if name in beside.hints:
        values = (*EMPTY, *beside.hints[name])
    else:
        values = (None, *beside.only[name]) if name in beside.only else EMPTY
    return any(_same(value, each) for each in values)


def asks_for_nothing(value: Any) -> bool:
    """Whether a value is empty."""
    return any(_same(value, each) for each in EMPTY)


def _same(value: Any, other: Any) -> bool:
    """Whether two values of JSON are the same. Python takes True for 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
