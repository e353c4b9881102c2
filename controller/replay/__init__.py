"""`ovs-lbt replay`: the engine, unchanged, over recorded traffic. The service loads none of it."""
