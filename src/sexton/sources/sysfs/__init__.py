"""Hardware, as the kernel shows it under `/sys`."""
