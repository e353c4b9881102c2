"""The service: Open vSwitch on one side, teaming policies on the other."""

import warnings

# OVS's own Python library looks for eventlet, which warns of itself when it is found.
warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
