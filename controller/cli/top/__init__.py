"""`ovs-lbt top`: uplinks, VM ports and decisions, live in a terminal."""
