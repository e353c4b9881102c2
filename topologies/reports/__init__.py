"""Reports the results of benches: on the terminal, as JSON, as HTML, and as docs/benchmarks.md."""
