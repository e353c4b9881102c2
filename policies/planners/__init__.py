"""Planners, which place units on uplinks: one module per algorithm."""
