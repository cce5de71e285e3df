"""Arguments that a golden definition does not take."""

from __future__ import annotations


def refuse(api: str, **arguments: object) -> None:
    """Raise NotImplementedError that names the first argument given; None stands for one that was not given."""
    for name, given in arguments.items():
        if given is not None:
            raise NotImplementedError(f"{api} has no golden definition with {name}")
