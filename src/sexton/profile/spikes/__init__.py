"""The seconds that stand out, and what grew in them (see docs/profile-method.md)."""

from sexton.profile.spikes.find import find
from sexton.profile.spikes.options import SpikeOptions

__all__ = ["SpikeOptions", "find"]
