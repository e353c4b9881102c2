"""What a bench tells: on the terminal, as JSON, as a page, as the document of all layouts."""
