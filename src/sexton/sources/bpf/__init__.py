"""bpf(2): counters that only a program inside the kernel can keep."""

#: The option that enables (and imports) the sources in here.
OPT_IN = "--probe"
