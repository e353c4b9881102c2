"""`ovs-lbt bench connections`: the cost of many cached and of new connections on a switch."""
