"""The verifier: an HTTP service that holds the target model and verifies draft tokens against it."""

from specpair.siblings import import_siblings

import_siblings()
