"""The recorder's cost compared with its peers, on a crowded machine."""
