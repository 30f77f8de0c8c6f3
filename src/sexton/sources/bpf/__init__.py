"""bpf(2): what only the kernel itself can count."""

#: The option without which no source in here is read, nor even imported.
ASKED_BY = "--probe"
