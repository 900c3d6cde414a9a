"""``python -m karrow`` is the ``karrow`` command."""

from __future__ import annotations

import sys

from karrow.cli.main import main

sys.exit(main())
