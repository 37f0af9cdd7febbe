from specpair.siblings import import_siblings

import_siblings()
