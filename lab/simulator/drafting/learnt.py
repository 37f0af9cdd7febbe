"""What a device, or a server that drafts, keeps from text to text: its draft model, and what texts have taught."""

from dataclasses import dataclass, field

from drafter_client.modes.selection import ModeSelection
from lab.simulator.drafting.engine import DraftEngine
from specpair.speculation.policy.experience import Experience


@dataclass(slots=True)
class Learnt:
    """What is kept. `engine`: None where nothing drafts."""

    engine: DraftEngine | None = None
    experience: Experience = field(default_factory=Experience)
    selection: ModeSelection | None = None  # of modes, once a text was written in mode auto
    probe: bool | None = None  # whether its texts have the real controller in a fleet by table; None: not chosen yet
