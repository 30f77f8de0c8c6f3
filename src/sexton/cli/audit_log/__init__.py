"""The subcommands of `sexton audit-log`, one module each."""
