"""Declaration of the mode ``--msprobe-communication``."""

from __future__ import annotations

from pytest_msprobe.run.mode import DeclaredMode
from pytest_msprobe.run.shared_options import HTML

COMMUNICATION = DeclaredMode(
    name="communication",
    flag="--msprobe-communication",
    flag_help="judge the communication between ranks: the folder of one step or of all steps, or one rank's dump.json",
    home="pytest_msprobe.extensions.communication.mode:CommunicationMode",
    shared_options=(HTML,),
)
