"""A program's settings in layers: flags override environment variables, these the file, the file the defaults.

Each value knows by which name its user gave it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from specpair.command_line import setting_sources as config_file
from specpair.command_line.options import read
from specpair.command_line.setting_sources import variables
from specpair.command_line.setting_values import SettingsError, advice, home
from specpair.options.option import AUTO, Option


class Layer(NamedTuple):
    """The settings from one source: flags, variables or file."""

    kind: Literal["flag", "variable", "key"]  # what gives a setting there; `key`: of the file
    values: Mapping[str, Any]  # by setting
    # The name of a setting there: --slots, VERIFIER_SLOTS, /path/specpair.toml [verifier] slots.
    key: Callable[[str], str]


class Names:
    """The names of a program's settings. Its variables begin with the table's name in capitals.

    `settings`: options by their present names.
    `former`: settings by a name that they had before.
    `taken`: options by the names by which their settings may be given.
    `paths`, `path_lists`, `secrets`: such names of settings that name a file, or several with commas, or are secret.
    """

    def __init__(self, table: str, options: Mapping[str, Option]) -> None:
        """`table`: in the file."""
        self.table, self.settings = table, options
        self.former = {each.about.formerly: name for name, each in options.items() if each.about.formerly}
        self.taken = {**options, **{old: options[name] for old, name in self.former.items()}}
        self.paths, self.secrets = (
            {name for name, each in self.taken.items() if each.kind is kind} for kind in (Path, SecretStr)
        )
        self.path_lists = {name for name, each in self.taken.items() if each.annotation == tuple[Path, ...]}

    def variable(self, setting: str) -> str:
        return f"{self.table}_{setting}".upper()

    def present(self, layer: Layer) -> Layer:
        """The layer with old names of settings replaced. Raises SettingsError for a setting with both names."""
        given = {now: name for name, now in self.former.items() if name in layer.values}
        for now, name in given.items():
            if now in layer.values:
                raise SettingsError(
                    f"{layer.key(name)}: {layer.key(now)} is the setting's new name, and both are given: leave one out"
                )
        values = {self.former.get(name, name): value for name, value in layer.values.items()}
        return layer._replace(values=values, key=lambda setting: layer.key(given.get(setting, setting)))


def lasting_layers(
    names: Names, config: Path | None, environment: Mapping[str, str], warn: Callable[[str], None]
) -> list[Layer]:
    """The layers below the flags: the variables of `environment`, and the file, if there is one.

    `config`: a file to read instead of the one that is found; see `config_file.read`. `warn` gets a line about each
        variable that nothing reads, and about a secret in a file that everybody can read.

    Raises SettingsError.
    """
    values, unknown = variables(names.variable(""), [name.upper() for name in names.taken], environment)
    for name in unknown:
        warn(f"{name}: nothing reads this variable, and it is ignored")
    layers = [Layer("variable", {name.lower(): value for name, value in values.items()}, names.variable)]
    file = config_file.read(names.table, names.taken, names.paths, config, environment, names.path_lists)
    if file is not None:
        path = file.path
        layers.append(Layer("key", file.values, lambda setting: f"{path} [{names.table}] {setting}"))
        for secret in sorted(set(names.secrets) & set(file.values)):
            if file.public:
                warn(f"{path} holds {secret}, and everybody on this machine can read it: chmod 600 {path}")
    return [names.present(layer) for layer in layers]


def first_path(layers: Sequence[Layer], setting: str) -> Path | None:
    """The value of a setting that names a file, from the first layer that has one."""
    return next((home(layer.values[setting]) for layer in layers if layer.values.get(setting)), None)


class LayeredSettings(BaseModel):
    """Settings that know the source of each value. Without `from_layers`, the arguments give the values."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), hide_input_in_errors=True)
    _given: dict[str, tuple[str, str]] = PrivateAttr(default_factory=dict)  # kind and name of those that are set
    _unused: set[str] = PrivateAttr(default_factory=set)

    @classmethod
    def from_layers(cls, layers: Sequence[Layer]) -> Self:
        """The settings in `layers`, the first of which override the others. Raises SettingsError."""
        values: dict[str, Any] = {}
        places: dict[str, tuple[str, str]] = {}
        for layer in reversed(layers):
            for name in layer.values.keys() & cls.model_fields.keys():
                values[name], places[name] = layer.values[name], (layer.kind, layer.key(name))
        try:
            settings = cls(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            message = first["msg"].removeprefix("Value error, ")
            if first["loc"]:
                name = str(first["loc"][0])
            else:  # the messages of a model's own checks begin with the setting's name
                name, _, message = message.partition(": ")
            key = next((layer.key(name) for layer in layers if name in layer.values), cls.usual_key(name))
            raise SettingsError(f"{key}: {message}") from None
        settings._given |= places
        return settings

    @classmethod
    def usual_key(cls, name: str) -> str:
        """The name by which errors call a setting that was not given."""
        return name

    def key(self, name: str) -> str:
        """The name by which errors call a setting: its flag, variable or key, whichever set the value."""
        return self._given[name][1] if name in self._given else self.usual_key(name)

    def lasting(self, name: str) -> bool:
        """Whether the value of a setting came from a variable or from the file, not from a flag of this one command."""
        return name in self._given and self._given[name][0] != "flag"

    def leave_out(self, name: str) -> None:
        """Note that the value of a setting is not used, because of another setting."""
        self._unused.add(name)

    def assignment(self, name: str) -> str:
        """The setting `name` with its value, as it was given: `--mode target`, `DRAFTER_MODE=target`."""
        between = {"flag": " ", "variable": "=", "key": " = "}[self._given[name][0] if name in self._given else "flag"]
        return f"{self.key(name)}{between}{getattr(self, name)}"

    def origin(self, name: str) -> str:
        """The source of a setting's value, for people to read."""
        if name not in self._given:
            return "default"
        kind, key = self._given[name]
        return (key if kind == "key" else f"{kind} {key}") + (", not used" if name in self._unused else "")

    @classmethod
    def secrets(cls) -> set[str]:
        """The settings whose values are never shown."""
        kinds = {name: field.annotation for name, field in cls.model_fields.items()}
        return {name for name, kind in kinds.items() if SecretStr in (kind, *get_args(kind))}


S = TypeVar("S", bound=LayeredSettings)


def settings_model(base: type[S], options: Mapping[str, Option]) -> type[S]:
    """A model like `base` with the options, named by setting, as its fields."""
    fields: dict[str, Any] = {name: _field(each) for name, each in options.items()}
    return create_model(base.__name__, __base__=base, **fields)


def _field(option: Option) -> tuple[Any, Any]:
    about = option.about
    annotation = str if option.names_a_choice else option.annotation
    if about.auto:
        annotation = annotation | Literal[AUTO]

    def value_of(given: Any) -> Any:
        """The value that was given as a text, or as a number. Raises ValueError."""
        if isinstance(given, str) or (type(given) in (int, float) and option.kind in (int, float)):
            return read(option, str(given))
        return given

    words = about.words + (f" (default: {about.usually})" if about.usually else "")
    return Annotated[annotation, Field(description=words), BeforeValidator(value_of)], option.usual


def settings_table(names: Iterable[str], settings: Sequence[LayeredSettings]) -> str:
    """A line for each name of `names` that is in `settings`, in the order of `names`."""
    rows = [("setting", "value", "from")]
    for name in names:
        for each in settings:
            if name in type(each).model_fields:
                rows.append((name, _shown(getattr(each, name)), each.origin(name)))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{name:{widths[0]}}  {value:{widths[1]}}  {origin}" for name, value, origin in rows)


def _shown(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "(set)" if len(value) else "(not set)"
    if value is None:
        return "(not set)"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text and text.isprintable() else repr(text)


UNKNOWN_KEY = "unknown_key"  # the type of the error, whose context has the `key`


class KnownKeys(BaseModel):
    """An object of a file or a request. Errors name an unknown key and suggest the right key."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_no_others(cls, given: Any) -> Any:
        if isinstance(given, dict):
            for key in given:
                if key not in cls.model_fields:
                    found = {"key": key, "shown": repr(key), "advice": advice(str(key), cls.model_fields)}
                    raise PydanticCustomError(UNKNOWN_KEY, "no key {shown}{advice}", found)
        return given
