"""What a host is called that one of execnet's specifications leads to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The name of this machine.
HERE = ""


def host_of(spec: Any, proxies: Mapping[str, Any]) -> str:
    """Return the name of the host where a process of a specification runs; ``HERE`` for this machine.

    That is the text of ``ssh=`` or the host of ``socket=``. ``proxies`` are the specifications that ``via=`` may name.
    """
    if spec.via:
        return host_of(proxies[spec.via], proxies) if spec.via in proxies else str(spec.via)
    if spec.socket:
        return str(spec.socket).rpartition(":")[0]
    return str(spec.ssh or spec.vagrant_ssh or HERE)
