"""Example experiments to copy and change. Each file builds a layout, runs a load, and draws it."""
