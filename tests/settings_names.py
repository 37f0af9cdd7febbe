"""Which variables of the environment are settings of this project."""

import drafter_client.program_options as drafter
import verifier_server.options as verifier
from gateway.router.settings import OPTIONS as ROUTER

SETTINGS = {
    "VERIFIER_": {*verifier.ADDRESS, *verifier.OPTIONS},
    "DRAFTER_": {name for name, option in drafter.OPTIONS.items() if option.lasts},
    "ROUTER_": {*ROUTER},
}


def is_setting(variable: str) -> bool:
    """Whether an end of the pair, or the router, reads this variable."""
    return any(
        variable.removeprefix(prefix).lower() in names
        for prefix, names in SETTINGS.items()
        if variable.startswith(prefix)
    )
