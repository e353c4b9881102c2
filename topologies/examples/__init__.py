"""Experiments to copy and change. Each file compares contenders under a load, and draws them."""
