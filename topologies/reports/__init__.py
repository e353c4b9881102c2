"""Reports the results of benches: on the terminal, as JSON, and as Markdown."""
