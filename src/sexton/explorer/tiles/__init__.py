"""A recording as tiles over one time axis, which the explorer draws.

Start with `view.View`. A lane is one module in `sexton.explorer.lanes`, found by `registry`.
"""
