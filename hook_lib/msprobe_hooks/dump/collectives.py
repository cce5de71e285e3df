"""What is known of collectives by their names, whichever framework recorded them."""

from __future__ import annotations

from collections.abc import Mapping

SENDS = frozenset({"send", "isend", "send_object_list"})
RECEIVES = frozenset({"recv", "irecv", "recv_object_list"})
#: Several sends and receives in one call.
BATCH = "batch_isend_irecv"
#: One rank gives to all others.
FROM_ROOT = frozenset({"broadcast", "broadcast_object_list", "scatter", "scatter_object_list"})
#: All ranks give to one.
TO_ROOT = frozenset({"reduce", "gather", "gather_object"})

#: Arguments that are only written to, by index and by name: what they hold before the call was never computed.
RECEIVED: Mapping[str, tuple[str, ...]] = {
    "recv": ("0", "tensor"),
    "irecv": ("0", "tensor"),
    "all_gather": ("0", "tensor_list"),
    "gather": ("1", "gather_list"),
    "scatter": ("0", "tensor"),
    "reduce_scatter": ("0", "output"),
    "_reduce_scatter_base": ("0", "output"),
    "_all_gather_base": ("0", "output_tensor"),
    "all_to_all_single": ("0", "output"),
    "all_to_all": ("0", "output_tensor_list"),
    "all_gather_into_tensor": ("0", "output_tensor"),
    "reduce_scatter_tensor": ("0", "output"),
}
