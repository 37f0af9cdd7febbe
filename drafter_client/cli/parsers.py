"""The parsers of the commands of `drafter`: which flags each has, and its help."""

from drafter_client.cli import flags
from drafter_client.options import Options
from drafter_client.program_options import ProgramOptions, engines
from models.hub.names import HubOptions
from specpair.command_line.options import add_options, flag_reader
from specpair.command_line.parser import OneOf, Parser, Switch, flag
from specpair.http_service.options import ACCESS, ROUTER, SERVICE
from specpair.options.option import options_of

COMMANDS = ("chat", "serve", "solo", "compare", "bench", "report", "models", "key", "completion")
SOLO = ("target", "draft", "server")  # the models that 'drafter solo' can run
_ANSWER = 1024  # the most tokens of an answer in a chat, unless told


def drafter_parser() -> Parser:
    """The parser of `python -m drafter_client`."""
    parser = Parser(
        "drafter",
        usage="[FLAGS] --prompt TEXT\n[FLAGS] < FILE\nchat | serve | solo | compare | bench\n"
        "report DIR | models | key | completion   (each has --help)",
        description="Generate text with a verifier: a small model here drafts, the large one there decides. 'chat' "
        "talks with the large one, 'serve' offers it to programs as OpenAI's API, 'solo' runs one model alone, "
        "'compare' tries every mode, 'bench' measures endpoints side by side, 'report' shows what --profile recorded, "
        "'models' fetches and compares models by name, 'key' makes keys for 'serve', 'completion' makes "
        "completions for a shell. Lasting flags can also be variables and keys in specpair.toml: "
        "--verifier is DRAFTER_VERIFIER, and verifier in the table [drafter].",
        examples=(
            'drafter --verifier http://bigbox:8000 --prompt "def main():" --stats',
            'drafter --draft-model llama-1b.gguf --chat --prompt "Why is the sky blue?"',
            "drafter --prompt-file prompts.txt --concurrency 4 --output results.jsonl",
        ),
        commands=COMMANDS,
    )
    parser.add_config_flags()
    flags.text_flags(parser, many=True)
    flags.lasting_flags(parser, "verifier")
    flags.draft_flags(parser, modes=True)
    flags.option_flags(parser, "sampling", "grammar", "acceptance")
    output = flags.output_flags(parser)
    output.add_argument("--baseline", action=Switch, help="measure the target alone on the same prompt, too")
    output.add_argument("--verbose", action=Switch, help="show the decision on each token")
    flags.profile_flag(output)
    return parser


def chat_parser() -> Parser:
    """The parser of `python -m drafter_client chat`."""
    parser = Parser(
        "drafter chat",
        usage="[FLAGS]",
        description="Talk with the target model in the terminal, with drafts from the small model here. /help lists "
        "the commands. Without a terminal, each line of standard input is a turn.",
        examples=(
            "drafter chat --verifier http://bigbox:8000 --draft-model llama-1b.gguf",
            'drafter chat --system "Be brief." --temperature 0.7 --sources',
            "drafter chat --mode target --max-tokens 200 --no-markdown",
        ),
    )
    parser.add_config_flags()
    text = parser.add_argument_group("text")
    add_options(text, Options, ["max_tokens", "stop", "cache_salt"], max_tokens={"default": _ANSWER})
    text.add_argument("--system", metavar="TEXT", help="system message")
    flags.lasting_flags(parser, "verifier")
    flags.draft_flags(parser, modes=True)
    flags.option_flags(parser, "sampling", "grammar", "acceptance")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--markdown", action=Switch, default=True, help="show answers as Markdown, in a terminal (default: yes)"
    )
    output.add_argument("--sources", action=Switch, help="colour each token by its source, and show no Markdown")
    flags.profile_flag(output)
    return parser


def serve_parser() -> Parser:
    """The parser of `python -m drafter_client serve`."""
    parser = Parser(
        "drafter serve",
        usage="[FLAGS]",
        description="Serve OpenAI's API on this machine: programs that talk to it get the target's texts, with drafts "
        "from the small model here.",
        examples=(
            "drafter serve --verifier http://bigbox:8000 --draft-model llama-1b.gguf",
            "drafter serve --mode auto --port 9000 --texts 2",
            'curl http://127.0.0.1:8080/v1/completions -d \'{"prompt": "def main():"}\'',
        ),
    )
    parser.add_config_flags()
    flags.lasting_flags(parser, SERVICE, ROUTER, ACCESS, "verifier")
    flags.draft_flags(parser, modes=True)
    return parser


def solo_parser() -> Parser:
    """The parser of `python -m drafter_client solo`."""
    parser = Parser(
        "drafter solo",
        usage="[target | draft | server] [FLAGS] --prompt TEXT",
        description="Run one model alone, token by token, with the time of each token.",
        examples=(
            'drafter solo --prompt "import os" --max-tokens 20',
            'drafter solo -hf Qwen/Qwen3-0.6B-GGUF --threads 4 --prompt "import os"',
            'drafter solo server --verifier http://bigbox:8000 --prompt "import os"',
        ),
    )
    parser.add_config_flags()
    model = parser.add_argument_group("model")
    model.add_argument(
        "which",
        nargs="?",
        choices=OneOf(SOLO),
        default=SOLO[0],
        help="target, draft: the shipped model, on this machine; server: the verifier's target (default: %(default)s)",
    )
    model.add_argument("--model", type=flags.path, metavar="PATH", help="another model, on this machine")
    named = options_of(HubOptions)["hf"]  # here of one run, as --model is
    spelled, about = [flag(named.setting), named.about.short], named.about
    model.add_argument(*spelled, type=flag_reader(named), metavar=about.placeholder, help=about.words)
    flags.text_flags(parser)
    flags.lasting_flags(parser, "verifier")
    backend = {"words": "engine", "choices": engines(drafters=False)}
    flags.engine_flags(parser.add_argument_group("engine"), backend=backend)
    flags.option_flags(parser, "sampling", "grammar")
    flags.output_flags(parser)
    return parser


def compare_parser() -> Parser:
    """The parser of `python -m drafter_client compare`."""
    parser = Parser(
        "drafter compare",
        usage="[FLAGS]",
        description="Write the same texts in every mode there is, by turns, and say which is the fastest here.",
        examples=(
            "drafter compare --verifier http://bigbox:8000",
            "drafter compare --draft-model llama-1b.gguf --lengths 2,4,8 --runs 1",
            "drafter compare --prompt-file code.txt --prompt-file chat.jsonl --json",
        ),
    )
    parser.add_config_flags()
    texts = parser.add_argument_group("texts")
    texts.add_argument(
        "--prompt-file",
        type=flags.path,
        metavar="FILE",
        action="append",
        help="prompts, one a line or JSON Lines; a kind of its own each time it is given (default: the two that ship)",
    )
    texts.add_argument(
        "--runs",
        metavar="N",
        type=flags.whole(1, 1000),
        default=3,
        help="times that each text is written (default: 3)",
    )
    add_options(texts, Options, ["max_tokens", "stop"], max_tokens={"default": 96})
    flags.chat_flags(texts)
    flags.lasting_flags(parser, "verifier")
    drafting = flags.draft_flags(parser)
    add_options(drafting, ProgramOptions, ["remember"])
    drafting.add_argument(
        "--lengths",
        type=flags.lengths,
        default=flags.lengths("1-8"),
        metavar="LIST",
        help="fixed numbers of draft tokens a round to try, beside automatic ones, as 1,2,4 or 1-8 (default: 1-8)",
    )
    flags.option_flags(parser, "sampling", "grammar")
    output = parser.add_argument_group("output")
    output.add_argument("--json", action=Switch, help="one JSON object on standard output, nothing else there")
    output.add_argument("--png", type=flags.path, metavar="FILE", help="the picture (default: compare.png)")
    output.add_argument("--no-png", action="store_true", help="no picture")
    flags.profile_flag(output)
    return parser
