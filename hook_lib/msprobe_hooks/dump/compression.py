"""The elements of a tensor as one frame of Zstandard, their bytes sorted by significance.

Of n elements of k bytes a frame holds the n lowest bytes, then those that follow, up to the n highest. So the exponents
of floats lie together, which are much alike; mantissas, which are noise, are stored as they are.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: What a container calls this form of a tensor.
CODEC: Final = "zstd-shuffle"
REMEDY: Final = "pip install 'pytest-msprobe[compression]'"

# Smaller ones take more to describe than they save.
_LEAST_BYTES = 1024
# A frame that saves less than a sixteenth is not worth the time to read it.
_LEAST_SHARE = 16
#: How many bytes one of a frame can stand for: its smallest block takes 4 bytes and holds 128 KiB.
MOST_GROWTH: Final = 2**15


class FrameError(ValueError):
    """Bytes are not a frame of a tensor's elements; the text says why."""


def is_available() -> bool:
    """Return whether the library of the codec is installed."""
    return find_spec("zstandard") is not None


def compressed(elements: memoryview, item_size: int) -> bytes | None:
    """Return the frame of contiguous elements, given as single bytes; None where it would hardly be smaller.

    The interpreter's lock is not held meanwhile.
    """
    if len(elements) < _LEAST_BYTES:
        return None
    import numpy as np
    import zstandard

    # Noise repeats little: fewer searches for repetitions cost less and leave more to the entropy coder, which gains.
    parameters = zstandard.ZstdCompressionParameters.from_level(1, hash_log=6, min_match=7, write_checksum=True)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=len(elements))
    pieces = []
    for plane in np.frombuffer(elements, np.uint8).reshape(-1, item_size).T:
        pieces.append(frame.compress(np.ascontiguousarray(plane).data))
        # A block has a code of its own.
        pieces.append(frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    pieces.append(frame.flush())
    whole = b"".join(pieces)
    return whole if len(whole) <= len(elements) - len(elements) // _LEAST_SHARE else None


def decompressed(frame: NDArray[np.uint8], item_size: int, size: int) -> NDArray[np.uint8]:
    """Return the elements, ``size`` bytes, that a frame holds; no memory is taken for more than twice as many.

    Raises FrameError where it holds anything else, ImportError where the codec's library is not installed.
    """
    import numpy as np
    import zstandard

    try:
        content_size = zstandard.frame_content_size(frame.data)
        if content_size != size or size > len(frame) * MOST_GROWTH:
            raise FrameError(
                f"its {len(frame)} bytes cannot hold the {size} recorded ones; they declare {content_size}"
            )
        content = zstandard.ZstdDecompressor().decompress(frame.data, allow_extra_data=False)
        elements = np.empty((size // item_size, item_size), np.uint8)
    except zstandard.ZstdError as error:
        raise FrameError(str(error)) from None
    except MemoryError:
        raise FrameError(f"not enough memory for its {size / 2**30:.1f} GiB") from None
    for place, plane in enumerate(np.frombuffer(content, np.uint8).reshape(item_size, -1)):
        elements[:, place] = plane
    return elements.reshape(-1)
