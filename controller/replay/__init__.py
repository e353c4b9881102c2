"""`ovs-lbt replay`: runs the engine on recorded traffic. The service does not load this package."""
