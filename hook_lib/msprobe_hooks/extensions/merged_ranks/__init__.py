"""The ranks of a tensor and pipeline parallel training as one run, as if one process had made it.

It reads the dumps of all ranks of a model by a layout (``tp=2,pp=2``) and joins their records: tensors that ranks hold
parts of become wholes as far as statistics and placements of DTensors show it, pipeline stages follow each other, and
communication between the ranks is left out. It adds nothing to recording and writes no file.

pytest-msprobe's extension of the same name compares such runs; the options are its own. Take it out by deleting this
folder, its counterpart in pytest-msprobe and tests/extensions/merged_ranks.

Importing its modules loads msgspec.
"""
