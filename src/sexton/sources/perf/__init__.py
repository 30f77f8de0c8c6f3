"""perf: what it writes, read without it; and the one source that runs it."""

#: The others turn bytes into samples; they are for the profile engine, and dear to import.
SOURCES = ("stacks",)
#: The option without which no source in here is read, nor even imported.
OPT_IN = "--stacks"
