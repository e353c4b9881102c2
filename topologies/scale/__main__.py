"""`make bench-scale`: the same as `ovs-lbt bench scale`."""

import sys

from topologies import bench

sys.exit(bench.main(["scale", *sys.argv[1:]]))
