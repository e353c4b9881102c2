"""The service: Open vSwitch on one side, teaming policies on the other.

Here are the command (`cli`), the service (`service`), the engine in it (`engine`), and what goes
without a service (`one_shot`, `rescue`). Everything else is in a room; `setup.cfg` says which room may
import which. The core (`engine`, `operations`, `bridge`, `decisions`, `load`, `teaming`, `api`,
`dataplane`, `config`, `text`) does no I/O; `openflow`, `ovsdb`, `metrics` and `host` do it.
"""

import os
import sys
import warnings
from typing import Any

_modules: dict[str, Any] = sys.modules

# Open vSwitch's Python library imports eventlet if it is installed, and os-ken installs it. That
# takes 16 MB and half of the time of a command. Only Ryu needs it.
if os.environ.get("OVS_LBT_FRAMEWORK") == "ryu":
    warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
else:
    _modules.setdefault("eventlet", None)
