"""The keys for how a fleet is run: its objectives, what fails, how it grows, what it costs."""

from pydantic import Field, model_validator

from lab.simulator.configuration.keys import Count, Keys, Mistake, NonNegative, Number, Positive


class SloKeys(Keys):
    """What users are promised. A request attains it if it keeps all bounds; null: no bound."""

    ttft_ms: Positive | None = None
    """from a request to its first token, at most"""
    tpot_ms: Positive | None = None
    """from its first token to its last, for each further token, at most"""
    latency_ms: Positive | None = None
    """from a request to its last token, at most"""


class FailureKeys(Keys):
    """Verifiers of a kind fail, each by itself, and lose their sessions."""

    devices: str
    """the kind"""
    up_s: Number
    """how long one runs until it fails"""
    repair_s: Number
    """how long until it runs again"""


class AutoscalingKeys(Keys):
    """The number of verifiers of a kind follows the queue."""

    devices: str
    """the kind; its `count` is the number at the beginning"""
    least: Count = 1
    """verifiers at all times"""
    most: Count
    """verifiers at most"""
    queue_time_ms: Positive
    """mean time of a request in the queue at which one is added; at half of it, one is taken away"""
    every_s: Positive = 15.0
    """how often the queue is looked at"""
    start_up_s: NonNegative = 60.0
    """until one that was added takes texts"""

    @model_validator(mode="after")
    def _ascend(self) -> "AutoscalingKeys":
        if self.least > self.most:
            raise Mistake(f"least, {self.least}, is above most, {self.most}", "least")
        return self


class Prices(Keys):
    """What the fleet costs. The unit of money is whichever the prices are in."""

    per_hour: dict[str, NonNegative] = Field(default_factory=dict)
    """of one device, by kind; 0 for kinds that are left out"""
    watts: dict[str, NonNegative] = Field(default_factory=dict)
    """that one device takes, by kind"""
    per_kwh: NonNegative = 0.0
    """of energy"""
