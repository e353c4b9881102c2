"""Experiments of one file each, to copy and change. Each builds its layout, runs it, and draws."""
