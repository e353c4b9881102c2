"""`ovs-lbt bench connections`: what many cached connections cost a switch, and what new ones do."""
