"""A chat: reads turns, runs commands, has the pair answer, and keeps the messages."""

from contextlib import closing
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from drafter_client.chat.answer_view import AnswerText, AnswerView, begins_thoughts
from drafter_client.chat.dialogue import Dialogue
from drafter_client.chat.turn_input import NO_SYSTEM, Called, TurnReader, help_lines, read, unechoed
from drafter_client.display.panel import legend, show
from drafter_client.display.panel_rows import notes, resumed
from drafter_client.errors import BadOption, BadPrompt, DrafterError, ModelChanged
from drafter_client.generation.generation import Generation, Tokens
from drafter_client.options import Mode, Options
from drafter_client.pair import Pair
from drafter_client.statistics import Stats
from gateway.openai_api.answer import markers_to_read
from specpair.command_line import setting_values
from specpair.engines.errors import BackendError
from specpair.numbers import counted
from specpair.protocol.errors import PromptTooLong, SpecPairError
from specpair.protocol.terminal_text import is_text, one_line, several_lines
from specpair.speculation.sampling import gumbel
from specpair.speculation.sampling.sampling import GREEDY_BELOW

_FAILURES = (SpecPairError, DrafterError, BackendError)
_UNFINISHED = "\ufffd"  # at the end of an interrupted text: a part of a character


def modes_of(pair: Pair) -> list[str]:
    return [Mode.AUTO.value, *(each.value for each in pair.modes)]


class ChatTerminated(KeyboardInterrupt):
    """The program was told to end. Ctrl-C ends only an answer."""


class Chat:
    """One conversation on a pair. A command or an answer that fails changes nothing."""

    def __init__(
        self,
        pair: Pair,
        options: Options,
        reader: TurnReader,
        *,
        system: str | None = None,
        markdown: bool = True,
        sources: bool = False,
        interactive: bool = True,
    ) -> None:
        """`markdown`, `sources`: how answers are shown, see `AnswerView`.
        `interactive`: whether a user can act on an error; else an error ends the chat.
        """
        self.dialogue, self.options = Dialogue(system), options
        self._pair, self._reader, self._interactive = pair, reader, interactive
        self._markdown, self._sources = markdown, sources
        self._out = Console(markup=False, highlight=False, soft_wrap=True)
        self._notes = Console(stderr=True, markup=False, highlight=False)
        self._last: Stats | None = None  # of the last answer
        self._seed: int | None = None  # that of the last answer

    def run(self) -> None:
        """Chat until the user leaves. Raises what ended it: ChatTerminated, or an error that nobody can act on."""
        coloured = self._out.color_system is not None and not self._out.no_color and self._out.is_terminal
        if self._interactive:
            drafter = f", {one_line(self._pair.draft_model)} drafts" if self._pair.draft_model else ""
            self._tell(f"{one_line(self._pair.target.name)}{drafter}  (/help lists the commands, Ctrl-D leaves)", "")
        if self._sources and coloured:
            self._out.print(legend(self._out.width))
        while (line := self._next()) is not None:
            try:
                if not is_text(line):
                    raise BadPrompt("what was typed is not valid text in this terminal's encoding: use UTF-8")
                said = read(line)
                if isinstance(said, str):
                    if said:
                        self.dialogue = self.dialogue.asked(said)  # also if it fails: it can be asked again
                        self._ask(self.dialogue, self.options)
                elif said.command.name == "quit":
                    return
                else:
                    self._obey(said)
            except _FAILURES as error:
                if not self._interactive:
                    raise
                hint = ", or begin anew with /new" if isinstance(error, PromptTooLong) else ""
                self._tell(f"drafter: {error}{hint}", "")

    def _next(self) -> str | None:
        try:
            return self._reader.read()
        except ChatTerminated:
            raise
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            return None

    def _obey(self, called: Called) -> None:
        argument = called.argument
        match called.command.name:
            case "help":
                self._say(*help_lines())
            case "stats":
                if self._last is None:
                    self._say("nothing was answered yet")
                else:
                    show(self._last, self._notes)
            case "save" | "load" as what:
                path = setting_values.home(argument)
                if what == "save":
                    self.dialogue.save(path)
                else:
                    self.dialogue = Dialogue.load(path)
                where = "in" if what == "save" else "from"
                self._say(f"{counted(len(self.dialogue.messages()), 'message')} {where} {path}")
            case "system":
                if argument:
                    self.dialogue = replace(self.dialogue, system=None if argument == NO_SYSTEM else argument)
                system = self.dialogue.system
                self._say("there is no system message" if system is None else f"system message: {system}")
            case "new":
                self.dialogue = Dialogue(self.dialogue.system)
                self._say("what was said is forgotten" + (", the system message stays" if self.dialogue.system else ""))
            case "retry":
                self._retry()
            case "model":
                self._say(*self._models())
            case "mode":
                self._mode(argument)

    def _mode(self, name: str) -> None:
        modes = modes_of(self._pair)
        if name and name not in modes:
            why = "this pair does not offer it now" if name in [*Mode] else "there is no such mode"
            raise BadOption(f"/mode {one_line(name)[:80]}: {why}, choose one of {', '.join(modes)}")
        if name:
            self.options = replace(self.options, mode=Mode(name))
        self._say(f"mode {self.options.mode.value}, of {', '.join(modes)}")

    def _models(self) -> list[str]:
        target, drafter = self._pair.target, self._pair.draft_model
        served = "" if target.draft_model is None else f", and {target.draft_model} to draft in mode fused"
        there = f"the verifier runs {target.name} on {target.engine} (context: {target.context_length} tokens){served}"
        return [
            one_line(there),
            "nothing drafts on this machine" if drafter is None else f"{one_line(drafter)} drafts on this machine",
            "This changes neither: a model is chosen where its end starts (--draft-model here, VERIFIER_MODEL there)",
        ]

    def _retry(self) -> None:
        asked = self.dialogue.asked_again()
        seed = self._seed if self._seed is not None else self.options.seed
        another = None if seed is None else (seed + 1) % gumbel.SEED_LIMIT
        if self.options.temperature < GREEDY_BELOW and not self.dialogue.unanswered:
            self._say("at temperature 0 every seed gives the same answer: start with --temperature 0.7 for others")
        self._ask(asked, replace(self.options, seed=another))

    def _ask(self, asked: Dialogue, options: Options) -> None:
        """Have a question answered. The dialogue keeps a partial answer that Ctrl-C or an error ended."""
        before = self.dialogue
        try:
            with unechoed():
                try:
                    self._answer(asked, options)
                except ModelChanged:
                    if self.dialogue is not before:
                        raise
                    self._answer(asked, options)  # the prompt is made anew, in the template of the model served now
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt, ChatTerminated) or not self._interactive:
                raise
            self._say("interrupted")

    def _answer(self, asked: Dialogue, options: Options) -> None:
        with closing(AnswerView(self._out, self._notes, markdown=self._markdown, sources=self._sources)) as view:
            generation, answer = self._begin(asked, options)
            try:
                with generation:
                    for event in generation:
                        if isinstance(event, Tokens):
                            view.add(answer.take(event.tokens), len(event.tokens))
            finally:
                view.add(answer.finish(generation.text.rstrip(_UNFINISHED)))
                if generation.stats.token_ids:
                    self._last, self._seed = generation.stats, generation.options.seed
                if answer.said:  # thoughts alone are no answer: the question can be asked again
                    self.dialogue = asked.answered(answer.said, answer.thoughts)
        self._say(*resumed(generation.stats), *notes(generation.stats))
        if generation.stats.ended_by == "max_tokens":
            self._say(f"cut after {counted(generation.options.max_tokens, 'token')} (--max-tokens)")

    def _begin(self, asked: Dialogue, options: Options) -> tuple[Generation, AnswerText]:
        target = self._pair.target
        prompt, markers = self._pair.chat(asked.messages()), markers_to_read(target.chat_template)
        answer = AnswerText(markers, begun=begins_thoughts(prompt, self._pair.vocabulary, markers))
        return self._pair.generate(prompt, options, identity=target.identity, shown=markers.texts), answer

    def _say(self, *lines: str) -> None:
        """Write notices that belong to no answer to standard error."""
        for line in lines:
            self._tell(line if self._notes.is_terminal else f"drafter: {line}", "dim")

    def _tell(self, line: str, style: str) -> None:
        self._notes.print(Text(several_lines(line), style), soft_wrap=not self._notes.is_terminal)
