"""The health check of the images: `python healthy.py URL` has status 0 if the URL answers with 200.

`/health` is asked, not `/ready`: a service that is overloaded refuses new texts, and yet works.
"""

import sys
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

_SECONDS = 4.0


def complaint(url: str) -> str | None:
    """The error of the service at `url`; None: it is healthy. Ignores proxies, as the service runs on this machine."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=_SECONDS):
            return None
    except (URLError, TimeoutError, ConnectionError) as error:  # URLError: also for every status but 2xx
        return f"{url}: {error}"


if __name__ == "__main__":
    sys.exit(complaint(sys.argv[1]))
