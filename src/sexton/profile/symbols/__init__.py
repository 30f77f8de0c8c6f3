"""Names for addresses: the kernel's, programs', just-in-time compiled code's."""

from sexton.profile.symbols.options import SymbolOptions

__all__ = ["SymbolOptions"]
