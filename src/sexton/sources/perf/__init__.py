"""The source that runs perf; `sexton.profile.perf` reads what it writes."""

SOURCES = ("stacks",)
#: The option without which this source is not imported.
OPT_IN = "--stacks"
