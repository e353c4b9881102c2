"""Results of benches: on the terminal, as JSON, as a page, and as the document of all layouts."""
