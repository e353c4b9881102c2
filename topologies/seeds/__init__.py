"""`ovs-lbt bench shift --seeds N`: generated load jumps."""
