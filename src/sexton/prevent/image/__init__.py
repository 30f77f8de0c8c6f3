"""A machine image's files, without mounting it and without running anything of it.

`open_image` takes a directory, a tar or a disk image and gives `Files` over it. None of them can
be led out of the image: links are resolved inside it, and what is no plain file is never opened.
"""

from __future__ import annotations

#: No source is in here, and most programs never open an image.
SOURCES: tuple[str, ...] = ()
