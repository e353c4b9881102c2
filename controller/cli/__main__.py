"""Runs the command: `python -m controller.cli`."""

from __future__ import annotations

import sys

from controller.cli import main

sys.exit(main())
