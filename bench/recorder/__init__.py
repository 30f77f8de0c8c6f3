"""The recorder's proof: what it costs beside its peers, on a machine with a crowd on it."""
