"""Checks of a program's calls while it runs, with their real inputs. Needs the extension mindspore.

Programs use ``pytest_msprobe.live``, tests the fixture ``msprobe_live``; ``PtdbgDispatch`` compares every operator with
the CPU as msprobe's ``PtdbgDispatch`` does. The options of a check, such as ``--msprobe-policy``, hold for the fixture.
With ``journal=FILE`` a program writes a journal, ``PtdbgDispatch`` writes msprobe's tables.

Take it out by deleting this folder and tests/extensions/live_checks.
"""

from __future__ import annotations

#: The module of each name that ``pytest_msprobe`` has from here.
EXPORTS = {"LiveChecks": "session", "PtdbgDispatch": "dispatch.ptdbg", "live": "session"}
