"""What a device, or a server that drafts, keeps from text to text: its draft model, and what texts have taught."""

from dataclasses import dataclass, field

from simulator.drafting.engine import DraftEngine
from specpair.speculation.policy.experience import Experience


@dataclass(slots=True)
class Learnt:
    """What is kept. `engine`: None where nothing drafts."""

    engine: DraftEngine | None = None
    experience: Experience = field(default_factory=Experience)
