"""One module per remedy; the file stem, an imperative, is its ID."""
