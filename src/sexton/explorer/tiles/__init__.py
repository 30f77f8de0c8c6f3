"""A recording as pictures over one time axis: what the explorer draws.

`view.View` is the door. A lane is one module in `sexton.explorer.lanes`, found by `registry`.
"""
