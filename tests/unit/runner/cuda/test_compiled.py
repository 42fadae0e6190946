"""The Triton kernels compiled for GPUs that need not be there: what the interpreter takes, the compiler may not."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import re
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from chairlift.models.spec import ACTIVATIONS, SCORES
from chairlift.runner.cuda.adapters.kernels import gated_up_kernel, low_kernel, up_kernel
from chairlift.runner.cuda.adapters.one_row_kernel import adapted_row_kernel, low_row_kernel
from chairlift.runner.cuda.attention.paged import combine_kernel, partial_kernel, single_kernel
from chairlift.runner.cuda.attention.exact_kernels import exact_prompt_kernel, exact_rows_kernel, join_kernel
from chairlift.runner.cuda.products.exact_kernels import product_kernel, log_sum_exp_kernel
from chairlift.runner.cuda.attention.exact_one_row_kernel import exact_one_row_kernel
from chairlift.runner.cuda.experts.few_rows_kernels import few_down_kernel, few_gated_kernel
from chairlift.runner.cuda.experts.grouped_kernel import grouped_kernel
from chairlift.runner.cuda.experts.routing_kernels import combine_kernel as combine_kernel_of_experts
from chairlift.runner.cuda.experts.routing_kernels import place_kernel, route_kernel
from chairlift.runner.cuda.kernels import activate_kernel, add_norm_kernel, cap_kernel, gate_kernel
from chairlift.runner.cuda.kernels import prepare_kernel, rotate_store_kernel
from chairlift.runner.cuda.recurrent.convolve_kernel import convolve_kernel
from chairlift.runner.cuda.recurrent.finish_kernel import finish_kernel
from chairlift.runner.cuda.recurrent.tiles_kernel import tiles_kernel
from chairlift.runner.cuda.recurrent.walk_kernel import walk_kernel
from chairlift.runner.cuda.sampling.argmax import argmax_kernel
from chairlift.runner.cuda.sampling.mask import mask_kernel
from chairlift.runner.cuda.attention.grouped_row_kernel import grouped_row_kernel
from chairlift.runner.cuda.attention.one_row_kernel import attend_kernel
from chairlift.runner.cuda.products.one_row_kernel import gated_kernel, one_row_kernel
from chairlift.runner.cuda.attention.pages import list_pages_kernel
from chairlift.runner.cuda.attention.prefill import prefill_kernel

INTEGERS = {"tables", "table_rows", "positions", "slots", "tiles", "starts", "pages", "counters"}
INTEGERS |= {"sample_rows", "tokens", "last", "rows", "words"}
INTEGERS |= {"ids", "order", "num_tiles", "spans", "units", "writes"}
BYTES = set()
FLOATS = {"partials", "stats", "rotation", "scales", "logits", "norms", "gain", "q_gain", "k_gain", "factors"}
FLOATS |= {"v_gain", "after", "base", "other"}
FLOATS |= {"correction", "weights", "sinks", "low", "taps", "decay", "factors", "sums", "inverses", "scores"}
NUMBERS = {"scale": "fp32", "cap": "fp32", "eps": "fp32", "factor": "fp32", "window": "i32", "width": "i32"}
NUMBERS |= {"num_outputs": "i32", "num_splits": "i32", "vocab": "i32", "spare": "i32", "num_rows": "i32"}
NUMBERS |= {"end_eps": "fp32"} | {"num_words": "i32", "q_width": "i32", "k_width": "i32"}
NUMBERS |= {"num_experts": "i32", "num_pairs": "i32", "stride": "i32", "table_width": "i32"}
NUMBERS |= {"writes_width": "i32", "pages_of_write": "i32"}
NUMBERS |= {"slot_size": "i64", "units": "i64", "down_units": "i32", "up_units": "i32"}

def kind(name):
    if name in NUMBERS:
        return NUMBERS[name]
    if name in BYTES:
        return "*u8"
    return "*i32" if name in INTEGERS else "*fp32" if name in FLOATS else "*bf16"

def check(kernel, options=None, **constants):
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else kind(name) for name in names}
    fixed = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=fixed)
    compiled = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options=options)
    if constants.get("IS_DEPENDENT"):
        before, _, after = compiled.asm["ptx"].partition("griddepcontrol.wait")
        assert "griddepcontrol.launch_dependents" in before + after, kernel
        assert after and not re.search(r"\\b(st|atom|red)\\.\\S*global", before), kernel
    return compiled

def check_order(kernel, warps, **constants):
    # The compiler may take numbers to the tensor cores in wider pieces, or fuse a multiplication with an addition: the
    # same mathematics, but other bits than the kernels next to it have.
    compiled = check(kernel, {"num_warps": warps, "enable_fp_fusion": False}, **constants)
    assert set(re.findall(r"kWidth = (\\d+)", compiled.asm["ttgir"])) <= {"2"}, kernel
    assert "fma." not in compiled.asm["ptx"], kernel

heads = {"HEADS": 32, "DIM": 128, "SIZE": 16}
dependent = {"IS_DEPENDENT": int(sys.argv[1]) >= 90}
for is_split in (False, True):
    split_options = {"SPLIT": 128, "IS_SPLIT": is_split, "HAS_CAP": is_split, "HAS_SINKS": is_split}
    check(single_kernel, **heads, **split_options, TILE=8, **dependent)
    check(partial_kernel, **heads, **split_options, KV_HEADS=8, GROUP=16, TILE=64, **dependent)
check(combine_kernel, HEADS=32, DIM=128, SPLIT=128, HAS_SINKS=True, **dependent)
for has_cap in (False, True):
    check(prefill_kernel, **heads, KV_HEADS=8, QUERIES=64, TILE=64, HAS_CAP=has_cap, HAS_SINKS=has_cap)
check(list_pages_kernel, BLOCK=64)
lone = {"HAS_AFTER": False, "HAS_BASE": False, "after": None, "base": None, **dependent}
lone |= {"HAS_OTHER": False, "other": None, "other_out": None}
plain = {"BLOCK": 4096, "HAS_BIAS": False, "IS_CENTRED": False, "bias": None, **lone}
check(add_norm_kernel, HAS_RESIDUAL=True, HAS_GAIN=True, **plain)
check(add_norm_kernel, HAS_RESIDUAL=True, HAS_GAIN=False, gain=None, **plain)
check(add_norm_kernel, HAS_RESIDUAL=False, HAS_GAIN=True, residual=None, **plain)
check(add_norm_kernel, BLOCK=4096, HAS_RESIDUAL=True, HAS_GAIN=True, HAS_BIAS=True, IS_CENTRED=True, **lone)
ends = {"HAS_AFTER": True, "HAS_BASE": True, "HAS_OTHER": True}
ends |= {"BLOCK": 4096, "IS_CENTRED": False, **dependent}
check(add_norm_kernel, HAS_RESIDUAL=True, HAS_GAIN=True, HAS_BIAS=True, **ends)
check(prepare_kernel, BLOCK=4096, HAS_NORM=True, HAS_FACTORS=False, factors=None, **dependent)
check(prepare_kernel, BLOCK=4096, HAS_NORM=False, HAS_FACTORS=True, q_gain=None, k_gain=None, **dependent)
for activation in ACTIVATIONS:
    for has_gate in (False, True):
        gate = {"HAS_GATE": has_gate, "HAS_TIMES": not has_gate}
        check(activate_kernel, BLOCK=1024, ACTIVATION=activation, **gate, **dependent)
check(cap_kernel, BLOCK=1024)
for has_norm in (False, True):
    gains = {} if has_norm else {"q_gain": None, "k_gain": None, "v_gain": None}
    norms = {"HAS_NORM": has_norm, "HAS_VALUE_NORM": has_norm, "HAS_VALUES": not has_norm, **gains, **dependent}
    check(rotate_store_kernel, **heads, KV_HEADS=8, Q_ROWS=32, KV_ROWS=8, **norms)
    split = {"SPLIT": 64, "HAS_OWN": True, "HAS_CAP": has_norm, **norms}
    check(grouped_row_kernel, {"num_warps": 8}, HEADS=16, KV_HEADS=2, GROUP=16, DIM=256, SIZE=16, **split)
row = {"WIDTH": 5000, "OUTPUTS": 4, "STRETCH": 1024, **dependent}
check(one_row_kernel, **row, scales=None, bias=None, HAS_SCALES=False, HAS_BIAS=False, ACTIVATION="", times=None)
check(one_row_kernel, **row, HAS_SCALES=True, HAS_BIAS=True, ACTIVATION="gelu_tanh")
check(argmax_kernel, TILE=16384)
check(mask_kernel, TILE=4096)
for activation in ACTIVATIONS:
    check(gated_kernel, WIDTH=5000, OUTPUTS=1, STRETCH=1024, ACTIVATION=activation, **dependent)
for split in (16, 128):
    split_options = {"SPLIT": split, "NUM_SPLITS": 32, "TILE": 16, "HAS_CAP": split == 128}
    check(attend_kernel, **heads, **split_options, HAS_NORM=False, q_gain=None, k_gain=None, **dependent)
for has_cap in (False, True):
    exact = {**heads, "KV_HEADS": 8, "SPLIT": 64, "TILE": 32, "HAS_CAP": has_cap}
    for is_whole in (False, True):
        check_order(exact_rows_kernel, 1 if is_whole else 2, **exact, GROUP=16, IS_WHOLE=is_whole, HAS_SINKS=has_cap)
    check_order(exact_prompt_kernel, 4, **exact, QUERIES=64, HAS_SINKS=has_cap)
    check_order(exact_one_row_kernel, 4, **exact, GROUP=16, **dependent)
check_order(join_kernel, 1, HEADS=32, DIM=128, SPLIT=64, HAS_SINKS=True)
for is_even in (False, True):
    ends = {"STRETCH": 128, "IS_FULL": is_even, "IS_EVEN": is_even}
    check(product_kernel, OUTPUTS=128, NUM_FULL=96, ROWS=16, ACTIVATION="", **dependent, **ends)
    for activation in ("", *ACTIVATIONS):
        check(product_kernel, OUTPUTS=64, NUM_FULL=32, ROWS=16, ACTIVATION=activation, **dependent, **ends)
check(log_sum_exp_kernel, TILE=4096)
route = {"BLOCK": 128, "CHOSEN": 8, "CHOICES": 8, **dependent}
for scores in SCORES:
    check(route_kernel, **route, SCORES=scores, IS_NORMALISED=True, HAS_CORRECTION=True, HAS_FACTORS=True)
check(place_kernel, EXPERTS=256, ROWS=16, BLOCK=1024)
check(combine_kernel_of_experts, CHOSEN=8, BLOCK=1024, HAS_SHARED=True, **dependent)
few = {"WIDTH": 768, "OUTPUTS": 4, "CHOSEN": 2, "HAS_BIAS": True, **dependent}
for is_mxfp4 in (False, True):
    BYTES = {"weight", "scales"} if is_mxfp4 else set()
    scales = {} if is_mxfp4 else {"scales": None}
    for rows, activation in ((16, "clamped"), (128, "")):
        check(grouped_kernel, {"num_warps": 4}, **scales, PAIRS=8, OUTPUTS=64, ROWS=rows, STRETCH=64, IS_EVEN=False,
              ACTIVATION=activation, HAS_BIAS=True, IS_MXFP4=is_mxfp4)
    check(few_gated_kernel, **few, **scales, STRETCH=1024, ACTIVATION="silu", IS_MXFP4=is_mxfp4)
    check(few_down_kernel, **few, **scales, STRETCH=256, HAS_SHARED=True, IS_MXFP4=is_mxfp4)
for is_one in (False, True):
    check(gate_kernel, BLOCK=1024, IS_ONE=is_one, **dependent)
half = {"C": 16, "TILE_PAGES": 6, "HALF_PAGES": 55}
net = {"KEY_HEADS": 16, "HEADS": 48, "KEY": 128, "VALUE": 128, **half, **dependent}
kept = {"TAPS": 4, "SIZE": 16384, "NARROW": 48 * 128 * 128 * 2, "RUN": 16}
no_fusion = {"enable_fp_fusion": False}
FLOATS |= {"bias"}
wide_units = NUMBERS.pop("units")
check(convolve_kernel, no_fusion, **net, **kept, SHARE=128)
check(tiles_kernel, {**no_fusion, "num_warps": 2}, **net, NEIGHBOURS=3, SIZE=16384, IS_WIDE=False)
check(finish_kernel, no_fusion, **net, **kept, SHARE=224)
FLOATS |= {"first", "second"}
check(walk_kernel, {**no_fusion, "num_stages": 2}, **net, NEIGHBOURS=3, SIZE=8192, SLICE=64, IS_WIDE=False)
FLOATS -= {"bias", "first", "second"}
NUMBERS["units"] = wide_units
parts = {"FIRST": 4096, "SECOND": 1024, "THIRD": 1024}
check(low_kernel, WIDTH=4096, PARTS=3, MAX_BLOCKS=4, STRETCH=1024, **dependent)
check(up_kernel, **parts, SPLITS=11, MAX_BLOCKS=4, OUTPUTS=256, **dependent)
check(gated_up_kernel, WIDTH=11008, PARTS=2, SPLITS=4, MAX_BLOCKS=4, OUTPUTS=128, ACTIVATION="silu", **dependent)
check(low_row_kernel, WIDTH=5000, PARTS=3, **dependent)
row = {"WIDTH": 4096, "STRETCH": 1024, **dependent}
check(adapted_row_kernel, **parts, **row, LINES=2, ACTIVATION="", HAS_BIAS=True)
gate = {"FIRST": 11008, "SECOND": 11008, "THIRD": 0}
check(adapted_row_kernel, **gate, **row, LINES=2, ACTIVATION="silu", HAS_BIAS=False, bias=None)
"""
HOPPER = """
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from chairlift.models.spec import ACTIVATIONS
from chairlift.runner.cuda.experts.hopper_kernel import mxfp4_kernel
from chairlift.runner.cuda.products.hopper_kernel import few_rows_kernel
from chairlift.runner.cuda.products.hopper_int4_kernel import int4_rows_kernel
from chairlift.runner.cuda.gluon import lines
from chairlift.runner.cuda.attention.hopper_prefill_kernel import hopper_prompt_kernel

NUMBERS = {"scale": "fp32", "window": "i32", "width": "i32", "num_lines": "i32"}
NUMBERS |= {"num_rows": "i32", "num_outputs": "i32", "num_stretches": "i32", "num_across": "i32", "num_groups": "i32"}
NUMBERS |= {"zero": "i32"}

def check(kernel, pointers, options, multiples_of_16=(), **constants):
    kinds = {name: "constexpr" if name in constants else (pointers | NUMBERS)[name] for name in kernel.arg_names}
    fixed = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    known = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in multiples_of_16}
    source = GluonASTSource(kernel, kinds, fixed, known)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, **options})

def table(num_lines):
    return f"tensordesc<bf16[{num_lines},64],{lines()!r}>"

for dim, size in ((128, 16), (64, 64)):
    pointers = {"q": "*bf16", "out": "*bf16", "keys": table(size), "values": table(size)}
    pointers |= {"tables": "*i32", "tiles": "*i32"}
    shape = {"HEADS": 28, "KV_HEADS": 4, "DIM": dim, "SIZE": size, "TILE": 64, "STAGES": 3}
    compiled = check(hopper_prompt_kernel, pointers, {}, **shape)
    assert "wgmma" in compiled.asm["ptx"] and "cp.async.bulk.tensor" in compiled.asm["ptx"]
for rows, lines_each, stretch, splits, activation, stages, programs in (
    (8, 64, 256, 1, "", 3, 2), (16, 64, 256, 2, "", 5, 1), (8, 32, 256, 1, "", 6, 1), (64, 64, 128, 1, "", 3, 2),
    (64, 64, 128, 2, "", 7, 1), (32, 64, 256, 1, "silu", 2, 2), (64, 64, 128, 1, "silu", 3, 2),
    *((8, 64, 256, 1, activation, 3, 2) for activation in ACTIVATIONS),
):
    pointers = {"x": table(rows), "weight": table(32 if activation else lines_each), "bias": "*bf16", "out": "*bf16",
                "partials": "*fp32", "counters": "*i32"}
    shape = {"ROWS": rows, "LINES": lines_each, "STRETCH": stretch, "SPLITS": splits, "STAGES": stages}
    compiled = check(
        few_rows_kernel, pointers, {"launch_pdl": True}, **shape, ACTIVATION=activation, HAS_BIAS=not activation
    )
    assert programs * compiled.metadata.shared < 227 << 10, "so many programs of a processor"
    before, _, after = compiled.asm["ptx"].partition("griddepcontrol.wait")
    assert "cp.async.bulk.tensor" in before and "st.global" not in before and "st.global" in after
layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=8, rank=2)
for rows, tiles, group, splits, stages, activation, scales, programs in (
    (8, 4, 128, 4, 3, "", "*fp16", 4), (8, 4, 128, 1, 3, "silu", "*bf16", 4), (64, 4, 128, 1, 2, "silu", "*fp16", 2),
    (32, 2, 64, 1, 3, "", "*fp16", 3), (16, 4, 32, 1, 2, "", "*bf16", 3), (8, 4, 4096, 4, 3, "", "*fp16", 4),
):
    x = f"tensordesc<bf16[{rows},{64 * tiles}],{lines()!r}>"
    pointers = {"x": x, "codes": f"tensordesc<u8[{16 * tiles},128],{layout!r}>", "scales": scales, "zeros": "*u8",
                "out": "*bf16", "partials": "*fp32", "counters": "*i32"}
    shape = {"ROWS": rows, "TILES": tiles, "GROUP": group, "HELD": 32, "SPLITS": splits, "STAGES": stages}
    compiled = check(
        int4_rows_kernel, pointers, {"launch_pdl": True}, **shape, ACTIVATION=activation, IS_PAIRED=bool(activation),
        IS_PRECISE=scales == "*fp16", HAS_ZEROS=True, HAS_BIAS=False, bias=None,
    )
    assert programs * compiled.metadata.shared < 227 << 10, "so many programs of a processor"
    ptx = compiled.asm["ptx"]
    before, _, after = ptx.partition("griddepcontrol.wait")
    assert "cp.async.bulk.tensor" in before and "st.global" not in before and "st.global" in after
pointers = {"x": "*bf16", "scales": "*u8", "bias": "*bf16", "out": "*bf16"}
pointers |= {"order": "*i32", "tiles": "*i32", "num_tiles": "*i32"}
for rows, lines_each in ((8, 64), (16, 128)):
    for activation in ("", "clamped"):
        pointers["weight"] = f"tensordesc<u8[{lines_each // 2 if activation else lines_each},128],{layout!r}>"
        shape = {"PAIRS": 4, "LINES": lines_each, "ROWS": rows, "STAGES": 2, "WARPS": 4}
        compiled = check(
            mxfp4_kernel, pointers, {}, ("x", "width"), **shape, ACTIVATION=activation, HAS_BIAS=True
        )
        assert "cp.async.bulk.tensor" in compiled.asm["ptx"] and "cp.async.cg" in compiled.asm["ptx"]
"""


@pytest.mark.nightly
@pytest.mark.parametrize("capability", ["80", "90"])
def test_every_kernel_compiles(capability: str) -> None:
    run(SCRIPT, capability)


@pytest.mark.nightly
def test_the_kernels_for_hopper_compile() -> None:
    run(HOPPER)


def run(*arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
