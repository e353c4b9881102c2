"""The layout `spine_leaf` for `mn --custom`. `topologies/layouts.py` describes it."""

import os
import sys

sys.path.insert(0, os.path.realpath((lambda: 0).__code__.co_filename + "/../.."))
from topologies.network.mininet_topo import topos_of

topos = topos_of("spine_leaf")
