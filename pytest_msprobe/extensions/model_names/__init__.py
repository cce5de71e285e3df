"""Names of one model in several frameworks, and how parts lie in parameters that frameworks fuse.

A table of Hugging Face, Megatron, vLLM, MindFormers and others gives each module and parameter one canonical name, and
says in which rows of ``qkv_proj`` or ``gate_up_proj`` its parts lie, by the numbers of heads of the model.
The extensions inference and checkpoint need it.

Its options are those of their modes: the key ``model_names`` of ``--msprobe-mapping``, which adds names, and
``--msprobe-model-config FILE``. It adds no mode and writes no file.
Take it out by deleting this folder and tests/extensions/model_names, and with it inference and checkpoint.

Importing its modules loads msgspec and yaml.
"""
