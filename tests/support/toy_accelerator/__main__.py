"""Runs a command with the cards of ``toy``."""

from __future__ import annotations

import os
import sys

from tests.support.toy_accelerator import variables

if __name__ == "__main__":
    os.execvpe(sys.argv[1], sys.argv[1:], os.environ | variables())
