"""A file of each mode's tokens per second and acceptance rate in earlier runs, by models, link and the target's host.

The file holds names of models, times and counts, but no prompt, token, address, key or session. It keeps the `_MOST`
entries that were written last. If two processes write at the same moment, the measurements of one may be lost, but
never the file. A file of another format is ignored with one line in the log, and replaced with the next measurement.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from backends.machine import cache_folder
from specpair.protocol.terminal_text import one_line
from specpair.shared_files import replacing
from specpair.speculation.policy.modes.estimate import ModeMeasurement
from specpair.speculation.policy.modes.rates import links_differ

_MOST = 64  # entries that are kept
_LONGEST_NAME = 200  # characters of a model's name that are kept
_LARGEST = 1 << 20  # bytes; a larger file is not read
_ALIKE = 0.4  # greatest difference between two measurements of a target pass on one host, as a share of the longer one
_log = logging.getLogger("specpair.drafter")


def _kept(name: object) -> object:
    """The part of a name that the file keeps. A file's name may hold bytes that are no text: they are escaped."""
    return name.encode(errors="backslashreplace").decode()[:_LONGEST_NAME] if isinstance(name, str) else name


_Name = Annotated[str, BeforeValidator(_kept)]
_Number = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0.0, le=1.0)]


def memory_file(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> Path | None:
    """The file that the command line uses, in the user's cache folder; None if there is no home folder. `home`: used in
    place of the user's home folder."""
    folder = cache_folder(environment, home)
    return None if folder is None else folder / "modes.json"


@validated(frozen=True, slots=True)
class Setting:
    """The models and the host that measurements belong to; together with the link they identify an entry."""

    target: _Name  # the target model's name, as the verifier reports it
    engine: _Name | None  # the target's engine
    pass_ms: _Number  # milliseconds of a target pass over one token, which tells hosts apart; 0: not known
    draft: _Name | None  # the drafter on this machine
    served_draft: _Name | None  # the drafter on the verifier, for mode `fused`

    @property
    def names(self) -> tuple[str | None, ...]:
        return self.target, self.engine, self.draft, self.served_draft


@dataclass(slots=True)
class _Record:
    tokens_per_second: _Number
    tokens: _Number  # how many tokens `tokens_per_second` was measured over; 0: it is not known
    accepted: _Share  # the acceptance rate, over the compared draft tokens
    compared: _Number  # how many draft tokens were compared with the target's choice; 0: `accepted` is not known
    when: _Number  # seconds since 1970

    def __post_init__(self) -> None:
        if self.tokens and not self.tokens_per_second:
            raise ValueError("tokens_per_second is 0 although tokens were measured")

    @classmethod
    def of(cls, measured: ModeMeasurement, now: float) -> "_Record":
        tokens, compared = round(measured.tokens), round(measured.compared)
        share = measured.accepted / measured.compared if measured.compared else 0.0
        return cls(round(measured.rate, 2), tokens, round(share, 4), compared, round(now))

    def measurement(self) -> ModeMeasurement:
        seconds = self.tokens / self.tokens_per_second if self.tokens else 0.0
        return ModeMeasurement(self.tokens, seconds, self.accepted * self.compared, self.compared, remembered=True)


@dataclass(slots=True)
class _Entry:
    setting: Setting
    link_ms: _Number  # the round trip in milliseconds
    written: _Number = 0.0  # `ModeSelector.written`: tokens over this link since the last trial of a mode
    modes: dict[str, _Record] = field(default_factory=dict)

    @property
    def link(self) -> float:
        return self.link_ms / 1e3


@dataclass(slots=True)
class _Content:
    version: Literal[1]
    entries: list[_Entry]


_FORMAT = TypeAdapter(_Content)


class ModeMemory:
    """A file of entries, the one written last at its end. All methods may be called from any thread."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._complained = False

    def recall(self, setting: Setting, link: float) -> tuple[dict[str, ModeMeasurement], float]:
        """Return the measurements by mode over the link whose round trip is nearest to `link` (s), and the entry's
        `written`; an empty dictionary and 0 if no link is similar."""
        with self._lock:
            entry = _nearest(self._read(), setting, link)
        if entry is None:
            return {}, 0.0
        return {mode: record.measurement() for mode, record in entry.modes.items()}, entry.written

    def acceptance_rates(self, setting: Setting) -> dict[str, float]:
        """Return the latest acceptance rate (0 to 1) by mode, over any link, as it does not depend on the link."""
        found: dict[str, float] = {}
        with self._lock:
            for entry in self._read():
                if entry.setting.names == setting.names:
                    found |= {mode: record.accepted for mode, record in entry.modes.items() if record.compared}
        return found

    def keep(self, setting: Setting, link: float, measured: Mapping[str, ModeMeasurement], written: float) -> None:
        """Write the measurements of this run, by mode, and `ModeSelector.written`; drop the tokens per second of
        earlier runs that `ModeRates` has dropped. A file that cannot be written is left unchanged, with one line in
        the log."""
        now = self._clock()
        fresh = {
            mode: _Record.of(measurement, now)
            for mode, measurement in measured.items()
            if measurement.worth_remembering and not measurement.remembered
        }
        if not fresh:
            return
        with self._lock:
            entries = self._read()
            before = _nearest(entries, setting, link)
            modes = ({} if before is None else before.modes) | fresh
            for mode, measurement in measured.items():
                if measurement.remembered and not measurement.tokens and mode in modes:
                    modes[mode].tokens = modes[mode].tokens_per_second = 0.0
            entry = _Entry(setting, round(1e3 * link, 3), round(written), modes)
            self._write([*(each for each in entries if each is not before), entry][-_MOST:])

    def _read(self) -> list[_Entry]:
        try:
            with self._path.open("rb") as file:
                data = file.read(_LARGEST + 1)
            if len(data) > _LARGEST:
                raise ValueError(f"it is longer than {_LARGEST} bytes")
            return _FORMAT.validate_json(data, strict=True).entries
        except FileNotFoundError:
            pass
        except OSError as error:
            self._complain(f"{self._path} cannot be read: {error.strerror}")
        except ValueError as error:
            self._complain(f"{self._path} is no memory of modes and will be replaced: {_reason(error)}")
        return []

    def _write(self, entries: list[_Entry]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path) as file:
                file.write(_FORMAT.dump_json(_Content(1, entries)))
        except OSError as error:
            self._complain(f"{self._path} cannot be written, nothing will be remembered: {error.strerror}")

    def _complain(self, what: str) -> None:
        if not self._complained:
            _log.warning("%s", what)
        self._complained = True


def _nearest(entries: list[_Entry], setting: Setting, link: float) -> _Entry | None:
    """The entry of the nearest similar link, of the same models on a host of about the same speed."""

    def alike(each: _Entry) -> bool:
        one, other = each.setting.pass_ms, setting.pass_ms
        same_speed = abs(one - other) <= _ALIKE * max(one, other)
        return same_speed and each.setting.names == setting.names and not links_differ(each.link, link)

    return min(filter(alike, entries), key=lambda each: abs(each.link - link), default=None)


def _reason(error: ValueError) -> str:
    """The fault of a file, in one line: the first fault that a ValidationError lists."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return one_line(f"{where}: {first['msg']}" if where else first["msg"])
