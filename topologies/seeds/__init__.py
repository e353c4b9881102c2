"""`ovs-lbt bench shift --seeds N`: jumps of load that nobody has chosen by hand."""
