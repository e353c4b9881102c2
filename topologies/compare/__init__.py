"""Compares contenders: defines them, runs them in scenarios, and computes and judges figures."""
