"""The layout `vmware_lbt` for `mn --custom`. `topologies/layouts.py` describes it."""

import os
import sys

# `mn` executes this file without a package, without __file__ and without the repository on sys.path,
# and copies every global over its own globals, so names must not collide.
_FILE = os.path.realpath((lambda: 0).__code__.co_filename)
sys.path.insert(0, os.path.dirname(os.path.dirname(_FILE)))

from topologies.network.mininet_topo import topos_of  # noqa: E402

topos = topos_of("vmware_lbt")
