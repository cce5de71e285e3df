"""The fast path through pytest: items of dumps skip the hooks that have no effect on them, and are made when asked for.

It takes effect where no other plugin needs more; the ini setting ``msprobe_fast_path`` (default: true) turns it off.
It uses a few private names of pytest, and is off, with a warning, where pytest lacks one (``private_names``). Which
records ``-k``, ``--lf`` and ``FILE::NAME`` leave out is known before items are made (``preselection``). It writes no
file.

Take it out by deleting this folder and tests/extensions/fast_path; items then take pytest's own path.
"""
