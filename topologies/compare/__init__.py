"""Compares contenders: their definition, scenarios, runs step by step, figures, expectations."""
