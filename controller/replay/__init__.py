"""`ovs-lbt replay`: runs the unchanged engine on recorded traffic. The service does not load it."""
