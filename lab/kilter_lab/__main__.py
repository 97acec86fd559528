"""``python3 -I -m kilter_lab < REQUEST_JSON``: see :mod:`kilter_lab.entry`."""

import sys

from kilter_lab.entry import main

sys.exit(main())
