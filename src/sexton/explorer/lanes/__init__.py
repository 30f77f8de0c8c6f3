"""The explorer's lanes, one module each."""
