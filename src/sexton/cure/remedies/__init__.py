"""One module per remedy; the file's stem, an imperative, is its id."""
