"""Processes elsewhere that do not do what they should."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_msprobe.extensions.remote.remote_device import RemoteDevice

# It needs no torch; ``starts`` counts those before it.
_PROCESS = """
import os, sys, time
from pathlib import Path
import msgspec
from pytest_msprobe.extensions.remote.messages import Frames
from pytest_msprobe.extensions.remote.messages import *

def send(answer, *blobs):
    frames.send(msgspec.msgpack.encode(answer), [memoryview(blob) for blob in blobs])

def ask():
    return frames.receive(2**30)[0]

os.write(1, HAIL)
frames = Frames(0, 1)
started = Path("started")
starts = len(started.read_text()) if started.exists() else 0
started.write_text("x" * (starts + 1))
"""
_GREETED = """
send(Greeting(PROTOCOL, "9.9", "Python 3", "2"))
ask(), send(Cards(2))
ask(), send(Card("a card", "cuda", {}, {}))
"""


def process_elsewhere(folder: Path, statements: str, *keys: str, greets: bool = True) -> RemoteDevice:
    """Return the device of a process that is started in a folder, has two cards, and then runs these statements.

    They may ``ask()`` and ``send(answer, *bytes)``. One that does not greet has no cards.
    """
    script = folder / "process.py"
    script.write_text(_PROCESS + _GREETED * greets + statements)
    return RemoteDevice("//".join(["popen", f"python={sys.executable} {script}", f"chdir={folder}", *keys]))
