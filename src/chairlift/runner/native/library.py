"""The library of compiled kernels: its signatures, and the instructions it uses on this processor.

Always: it links no OpenMP runtime, so torch's is the only one in the process. Knows nothing of tensors.
"""

from ctypes import CDLL, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path

# As in kernels.h.
HAS_AVX2, HAS_AVX512, HAS_AVX512_BF16, HAS_AMX, HAS_AVX512_VNNI, HAS_AMX_INT8 = 1, 2, 4, 8, 16, 32
HAS_NEON, HAS_DOTPROD, HAS_I8MM, HAS_ARM_BF16 = 64, 128, 256, 512
_LEAST = HAS_AVX2 | HAS_NEON  # one of these

# That a thread looks for work before it sleeps: docs/design/0003-cpu-kernels.md.
SPIN_NS = 14_000

_SIGNATURES = {
    "chairlift_set_threads": (None, [c_int, c_int64]),
    "chairlift_product": (None, [c_void_p] * 4 + [c_int64] * 3 + [c_int] * 2),
    "chairlift_product_pack": (None, [c_void_p] * 2 + [c_int64] * 2 + [c_int]),
    "chairlift_product_rows": (None, [c_void_p] * 3 + [c_int64] * 2 + [c_int]),
    "chairlift_quant_bytes": (c_int64, [c_int] + [c_int64] * 2),
    "chairlift_quant_pack": (c_int64, [c_int] + [c_void_p] * 2 + [c_int64] * 2),
    "chairlift_groups_bytes": (c_int64, [c_int] + [c_int64] * 3 + [c_int] * 3),
    "chairlift_groups_pack": (None, [c_int] + [c_void_p] * 5 + [c_int64] * 3 + [c_int] * 2),
    "chairlift_quant_floats": (c_int64, [c_int] + [c_void_p] * 2 + [c_int64] * 2),
    "chairlift_quant_rows": (None, [c_int] + [c_void_p] * 3 + [c_int64] * 2 + [c_int]),
    "chairlift_quant_product": (None, [c_int] + [c_void_p] * 4 + [c_int64] * 4 + [c_int] * 2),
    "chairlift_norm": (None, [c_void_p] * 5 + [c_int, c_int64, c_int64, c_float, c_float, c_int, c_int]),
    "chairlift_activate": (None, [c_void_p] * 2 + [c_int, c_int64, c_int, c_int, c_int]),
    "chairlift_encoder_attention": (None, [c_void_p] * 7 + [c_int64] + [c_int] * 4 + [c_float, c_int, c_int]),
    "chairlift_cap": (None, [c_void_p, c_int, c_int64, c_float]),
    "chairlift_route": (None, [c_void_p] * 5 + [c_int] * 7 + [c_float]),
    "chairlift_experts": (None, [c_void_p] * 7 + [c_int] + [c_int64] * 2 + [c_int] * 6),
    "chairlift_adapters": (None, [c_void_p] * 4 + [c_int] + [c_int64] * 2 + [c_int] * 2),
    "chairlift_rotate": (None, [c_void_p] * 10 + [c_int] * 6 + [c_float, c_int, c_int]),
    "chairlift_gate": (None, [c_void_p] * 2 + [c_int] + [c_int64] * 2 + [c_int] * 2),
    "chairlift_attention": (None, [c_void_p] * 8 + [c_int64] + [c_int] * 5 + [c_float] * 2 + [c_int] * 3),
    "chairlift_delta_net": (None, [c_void_p] * 8 + [c_int] * 2 + [c_float, c_int]),
    "chairlift_play": (None, [c_void_p, c_int64]),
    "chairlift_argmax": (None, [c_void_p] * 2 + [c_int, c_int64]),
    "chairlift_draw": (None, [c_void_p, c_int64, c_int, c_void_p, c_int64, c_void_p]),
}


@cache
def load() -> CDLL | None:
    """The library, or None where it was not built or is not for this processor."""
    for path in sorted(Path(__file__).parent.glob("_kernels*.so")):
        try:
            library = CDLL(str(path))
            library.chairlift_features.argtypes, library.chairlift_features.restype = [c_int], c_int
            if not library.chairlift_features(-1) & _LEAST:
                return None
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(library, name)
                function.argtypes, function.restype = arguments, result
        except (OSError, AttributeError):  # built for another system, or by another version
            continue
        return library
    return None


def features() -> int:
    library = load()
    return int(library.chairlift_features(-1)) if library else 0


def instruction_set() -> str:
    """The best that the kernels use here."""
    names = {"amx": HAS_AMX, "avx512": HAS_AVX512, "avx2": HAS_AVX2, "neon": HAS_NEON}
    return next((name for name, bit in names.items() if features() & bit), "none")
