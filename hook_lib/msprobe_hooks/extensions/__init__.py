"""Extensions of the library, outside of its core: each folder is one, and can be taken out by deleting it.

The package of an extension has the names of `msprobe_hooks.extension_points` that it needs. The core imports no
extension, but asks those that `msprobe_hooks.installed_extensions` finds here; an extension imports the core and, where
its first line says so, one other.

Importing its modules loads msgspec.
"""
