"""What Griffe asks while it reads the sources: the signature of a class that is made by ``__new__``."""

from __future__ import annotations

from typing import Any

import griffe


class SignatureOfNew(griffe.Extension):
    """Gives a class without ``__init__`` the parameters of its ``__new__``."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add the parameters of a class, which Griffe reads from ``__init__`` alone."""
        new = cls.members.get("__new__")
        if isinstance(new, griffe.Function) and "__init__" not in cls.members:
            cls.set_member("__init__", griffe.Function("__init__", parameters=new.parameters))
