"""Kernel dumps of an NPU that CANN's converter made ``.npy`` files of, as msprobe's ``parse`` compares them."""
