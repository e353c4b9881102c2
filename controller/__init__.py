"""Balances VM ports over the uplinks of Open vSwitch bridges, according to teaming policies.

The main modules are the command (`cli`), the service (`service`), its engine (`engine`), and tools that
work without a service (`one_shot`, `rescue`). `setup.cfg` defines the packages and their allowed
imports. The core (`engine`, `operations`, `bridge`, `decisions`, `load`, `teaming`, `api`, `dataplane`,
`config`, `text`) does no I/O; `openflow`, `ovsdb`, `metrics` and `host` do.
"""

import os
import sys
import warnings
from typing import Any

_modules: dict[str, Any] = sys.modules

# Open vSwitch's Python library imports eventlet if it is installed, and os-ken installs it. The import
# takes 16 MB and half of a command's time. Only Ryu needs eventlet.
if os.environ.get("OVS_LBT_FRAMEWORK") == "ryu":
    warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
else:
    _modules.setdefault("eventlet", None)
