"""The fast path through pytest: what judged items are spared of it, all of which one ini setting turns off."""
