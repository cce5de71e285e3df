"""Extensions of the plugin, outside of its core: each folder is one, and can be taken out by deleting it.

An extension enters by the hooks of `pytest_msprobe.hookspecs`, as a plugin of another distribution does: its package
has functions of their names, which import what they need when they are called.

The core imports no extension, but calls those that `pytest_msprobe.installed_extensions` finds here; an extension
imports the core and, where its first line says so, one other.

Importing its modules loads nothing.
"""
