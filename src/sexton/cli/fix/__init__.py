"""The subcommands of `sexton fix`, one module each."""
