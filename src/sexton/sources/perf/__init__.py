"""The source that runs perf; `sexton.profile.perf` reads what it writes."""

SOURCES = ("stacks",)
#: The option without which this source is not imported.
ASKED_BY = "--stacks"
