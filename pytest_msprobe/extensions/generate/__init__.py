"""Records of a dump become stand-alone tests that a person can read, change and pass on.

``command`` takes these steps: which records (``failures``), what is written for them (``plan``,
``module``, ``spelling``, ``functions``, ``layout``), where (``folder``), and whether they fail (``fresh_run``).
"""
