"""The command `verifier` without a name: serves, with its settings as flags."""

from collections.abc import Sequence

from specpair.command_line.start import keep_loaded_objects
from specpair.http_service import listening
from specpair.http_service.observability import logs
from verifier_server.app import create_app, stop_process
from verifier_server.flags import from_flags


def run(arguments: Sequence[str]) -> int:
    """Serve until stopped. Returns the exit status: see `listening.run`; 1 also when the model cannot
    be loaded, or the engine dies."""

    def make() -> listening.ServedApp:
        settings, address = from_flags(arguments)
        logs.configure(settings.log_format)
        app = create_app(
            settings,
            on_failure=lambda: stop_process(1),
            on_success=keep_loaded_objects,
        )
        service = app.state.service
        return listening.ServedApp(app, address.host, address.port, lambda: int(service.failure is not None))

    return listening.run("verifier", make)
