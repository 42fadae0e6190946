/* Tiles by dot products of bytes, written out, because compilers keep part of the sums in memory. As in quant_neon.h:
 *
 *     four rows, 8 outputs     v16-v23 dots, v24-v31 sums, two vectors of outputs for each row
 *     one row, 16 outputs      v16-v19 dots, v24-v27 sums
 *
 * Dots begin at the bits of 1.5 * 2^23, so that as floats they are that number more: to take it off costs a fourth of a
 * conversion, and to load it where dots begin costs them nothing. A dot is less than 2^22.
 */
#ifndef CHAIRLIFT_QUANT_DOT_H
#define CHAIRLIFT_QUANT_DOT_H

#include "quant.h"

static const int32_t DOT_ZERO[4] = {0x4b400000, 0x4b400000, 0x4b400000, 0x4b400000};

#define VECTORS                                                                                                         \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", \
        "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"
#define DOT(dots, w, x, lane) "sdot v" #dots ".4s, v" #w ".16b, v" #x ".4b[" #lane "]\n"
#define LOW_AND_HIGH(low, high) \
    "ushr v" #high ".16b, v" #low ".16b, #4\n and v" #low ".16b, v" #low ".16b, v13.16b\n"
/* Four numbers by four others, and by one. */
#define EACH(op, to, a, b) #op " v" #to ".4s, v" #a ".4s, v" #b ".4s\n"
#define BY_ONE(op, to, a, b) #op " v" #to ".4s, v" #a ".4s, v" #b ".s[0]\n"
#define LESS_ZERO(dots) EACH(fsub, dots, dots, 12)

/* Four rows. v4-v7: the first 16 columns of a block of x, v8-v11: the last. */
#define ZEROS                                                                             \
    "ldr q16, [%[zero]]\n ldr q17, [%[zero]]\n ldr q18, [%[zero]]\n ldr q19, [%[zero]]\n" \
    "ldr q20, [%[zero]]\n ldr q21, [%[zero]]\n ldr q22, [%[zero]]\n ldr q23, [%[zero]]\n"
#define LOAD_2(a, b, at) "ldr q" #a ", [%[w], #" #at "]\n ldr q" #b ", [%[w], #" #at " + 16]\n"
#define DOTS(a, b, lane, x0, x1, x2, x3)                                              \
    DOT(16, a, x0, lane) DOT(17, b, x0, lane) DOT(18, a, x1, lane) DOT(19, b, x1, lane) \
    DOT(20, a, x2, lane) DOT(21, b, x2, lane) DOT(22, a, x3, lane) DOT(23, b, x3, lane)
#define BYTES(at, x0, x1, x2, x3)                                                                      \
    LOAD_2(0, 1, at) DOTS(0, 1, 0, x0, x1, x2, x3) LOAD_2(2, 3, at + 64) DOTS(2, 3, 1, x0, x1, x2, x3) \
    LOAD_2(0, 1, at + 128) DOTS(0, 1, 2, x0, x1, x2, x3) LOAD_2(2, 3, at + 192) DOTS(2, 3, 3, x0, x1, x2, x3)
#define FIRST_HALF BYTES(0, 4, 5, 6, 7)
#define LAST_HALF BYTES(256, 8, 9, 10, 11)
#define NIBBLES(at, lane) \
    LOAD_2(0, 1, at) LOW_AND_HIGH(0, 2) LOW_AND_HIGH(1, 3) DOTS(0, 1, lane, 4, 5, 6, 7) DOTS(2, 3, lane, 8, 9, 10, 11)
#define SCALE_ROW(a, b, sum_a, sum_b, xd)                                   \
    BY_ONE(fmul, 0, 2, xd) BY_ONE(fmul, 1, 3, xd) LESS_ZERO(a) LESS_ZERO(b) \
    EACH(fmla, sum_a, a, 0) EACH(fmla, sum_b, b, 1)
#define SCALE(at, step)                                                                                           \
    "ldr q2, [%[d], #" #at "]\n ldr q3, [%[d], #" #at " + 16]\n"                                                  \
    "ldr s4, [%[xd0]]" step "\n ldr s5, [%[xd1]]" step "\n ldr s6, [%[xd2]]" step "\n ldr s7, [%[xd3]]" step "\n" \
    SCALE_ROW(16, 17, 24, 25, 4) SCALE_ROW(18, 19, 26, 27, 5) SCALE_ROW(20, 21, 28, 29, 6) SCALE_ROW(22, 23, 30, 31, 7)
#define MINS_ROW(sum_a, sum_b, xm) BY_ONE(fmla, sum_a, 0, xm) BY_ONE(fmla, sum_b, 1, xm)
#define SCALE_WITH_MINS                                                                                          \
    "ldr s8, [%[xd0], %[xm]]\n ldr s9, [%[xd1], %[xm]]\n ldr s10, [%[xd2], %[xm]]\n ldr s11, [%[xd3], %[xm]]\n"  \
    SCALE(0, ", #4") "ldr q0, [%[m]]\n ldr q1, [%[m], #16]\n add %[m], %[m], #64\n"                              \
    MINS_ROW(24, 25, 8) MINS_ROW(26, 27, 9) MINS_ROW(28, 29, 10) MINS_ROW(30, 31, 11)

#define FOUR(name, w_bytes, d_bytes, block)                                                                              \
    DOTPROD static void name(const quant_tile *t, int rows) {                                                            \
        float own[4 * PANEL], *sums = rows == 4 ? t->sums : own;                                                         \
        if (rows < 4) memcpy(own, t->sums, (size_t)rows * PANEL * sizeof(float));                                        \
        int64_t r1 = min_int(1, rows - 1) * t->blocks, r2 = min_int(2, rows - 1) * t->blocks;                            \
        int64_t r3 = (rows - 1) * t->blocks, xm = (const char *)t->xm - (const char *)t->xd;                             \
        for (int column = 0; column < PANEL; column += 8) {                                                              \
            const int8_t *w = t->q + 4 * column, *ahead = t->q + AHEAD + w_bytes / 2 * (column / 8), *x0 = t->x;         \
            const int8_t *x1 = x0 + r1 * BLOCK, *x2 = x0 + r2 * BLOCK, *x3 = x0 + r3 * BLOCK;                            \
            const float *d = t->d + column, *m = t->m + column;                                                          \
            const float *xd0 = t->xd, *xd1 = xd0 + r1, *xd2 = xd0 + r2, *xd3 = xd0 + r3;                                 \
            int64_t count = t->count;                                                                                    \
            __asm__ volatile(                                                                                            \
                "ldr q12, [%[zero]]\n movi v13.16b, #15\n ldp q24, q25, [%[sums]]\n ldp q26, q27, [%[sums], #64]\n"      \
                "ldp q28, q29, [%[sums], #128]\n ldp q30, q31, [%[sums], #192]\n"                                        \
                "1:\n ldp q4, q8, [%[x0]], #32\n ldp q5, q9, [%[x1]], #32\n ldp q6, q10, [%[x2]], #32\n"                 \
                "ldp q7, q11, [%[x3]], #32\n" ZEROS block                                                                \
                "add %[w], %[w], #" #w_bytes "\n add %[d], %[d], #" #d_bytes "\n add %[ahead], %[ahead], #" #w_bytes "\n" \
                "subs %[count], %[count], #1\n b.ne 1b\n"                                                                \
                "stp q24, q25, [%[sums]]\n stp q26, q27, [%[sums], #64]\n stp q28, q29, [%[sums], #128]\n"               \
                "stp q30, q31, [%[sums], #192]\n"                                                                        \
                : [w] "+r"(w), [ahead] "+r"(ahead), [d] "+r"(d), [m] "+r"(m), [count] "+r"(count), [x0] "+r"(x0),        \
                  [x1] "+r"(x1), [x2] "+r"(x2), [x3] "+r"(x3), [xd0] "+r"(xd0), [xd1] "+r"(xd1), [xd2] "+r"(xd2),        \
                  [xd3] "+r"(xd3)                                                                                        \
                : [sums] "r"(sums + column), [xm] "r"(xm), [zero] "r"(DOT_ZERO)                                          \
                : "memory", "cc", VECTORS);                                                                              \
        }                                                                                                                \
        if (rows < 4) memcpy(t->sums, own, (size_t)rows * PANEL * sizeof(float));                                        \
    }
#define AHEAD_2 "prfm pldl1keep, [%[ahead]]\n prfm pldl1keep, [%[ahead], #64]\n"
#define AHEAD_4 AHEAD_2 "prfm pldl1keep, [%[ahead], #128]\n prfm pldl1keep, [%[ahead], #192]\n"

FOUR(four_plain, 512, 64, AHEAD_4 FIRST_HALF LAST_HALF SCALE(0, ", #4"))
FOUR(four_mins, 512, 64, FIRST_HALF LAST_HALF SCALE_WITH_MINS)
FOUR(four_nibbles, 256, 64, AHEAD_2 NIBBLES(0, 0) NIBBLES(64, 1) NIBBLES(128, 2) NIBBLES(192, 3) SCALE_WITH_MINS)
FOUR(four_halves, 512, 128, FIRST_HALF SCALE(0, "") ZEROS LAST_HALF SCALE(64, ", #4"))

/* One row, a whole panel, its scales as they lie in it. v4, v5: the columns of a block of x. Memory is asked for by the
 * processor itself, as fast as it comes; asking for it ahead makes this slower. */
#define ZEROS_ONE "ldr q16, [%[zero]]\n ldr q17, [%[zero]]\n ldr q18, [%[zero]]\n ldr q19, [%[zero]]\n"
#define LOAD_4(at) "ldp q0, q1, [%[w], #" #at "]\n ldp q2, q3, [%[w], #" #at " + 32]\n"
#define DOTS_ONE(a, b, c, e, x, lane) DOT(16, a, x, lane) DOT(17, b, x, lane) DOT(18, c, x, lane) DOT(19, e, x, lane)
#define BYTES_ONE(at, x)                                                              \
    LOAD_4(at) DOTS_ONE(0, 1, 2, 3, x, 0) LOAD_4(at + 64) DOTS_ONE(0, 1, 2, 3, x, 1)  \
    LOAD_4(at + 128) DOTS_ONE(0, 1, 2, 3, x, 2) LOAD_4(at + 192) DOTS_ONE(0, 1, 2, 3, x, 3)
#define NIBBLES_ONE(at, lane)                                                                \
    LOAD_4(at) LOW_AND_HIGH(0, 8) LOW_AND_HIGH(1, 9) LOW_AND_HIGH(2, 10) LOW_AND_HIGH(3, 11) \
    DOTS_ONE(0, 1, 2, 3, 4, lane) DOTS_ONE(8, 9, 10, 11, 5, lane)
#define ALL_NIBBLES_ONE NIBBLES_ONE(0, 0) NIBBLES_ONE(64, 1) NIBBLES_ONE(128, 2) NIBBLES_ONE(192, 3)

/* 16 half floats to v(a)-v(e). To v0-v3: 16 bytes times v(a)-v(e); v(upper) makes 2^23 + byte of bytes, v15 is taken off. */
#define HALVES_TO(from, a, b, c, e)                                                          \
    "ldp q6, q7, [%[" #from "]], #32\n fcvtl v" #a ".4s, v6.4h\n fcvtl2 v" #b ".4s, v6.8h\n" \
    "fcvtl v" #c ".4s, v7.4h\n fcvtl2 v" #e ".4s, v7.8h\n"
#define ZIP(half, to, a, b, size) "zip" #half " v" #to size ", v" #a size ", v" #b size "\n"
#define BYTES_TIMES(from, upper, a, b, c, e)                                                                      \
    "movi v8.16b, #0\n" ZIP(1, 9, from, 8, ".16b") ZIP(2, 10, from, 8, ".16b")                                    \
    ZIP(1, 0, 9, upper, ".8h") ZIP(2, 1, 9, upper, ".8h") ZIP(1, 2, 10, upper, ".8h") ZIP(2, 3, 10, upper, ".8h") \
    EACH(fsub, 0, 0, 15) EACH(fsub, 1, 1, 15) EACH(fsub, 2, 2, 15) EACH(fsub, 3, 3, 15)                           \
    EACH(fmul, 0, 0, a) EACH(fmul, 1, 1, b) EACH(fmul, 2, 2, c) EACH(fmul, 3, 3, e)

/* sums += dots * (v0-v3 * xd); sums += v(a)-v(e) * xm */
#define SCALE_ONE(a, b, c, e)                                                                                        \
    "ldr s11, [%[xd]]\n" BY_ONE(fmul, 0, 0, 11) BY_ONE(fmul, 1, 1, 11) BY_ONE(fmul, 2, 2, 11) BY_ONE(fmul, 3, 3, 11) \
    LESS_ZERO(a) LESS_ZERO(b) LESS_ZERO(c) LESS_ZERO(e)                                                              \
    EACH(fmla, 24, a, 0) EACH(fmla, 25, b, 1) EACH(fmla, 26, c, 2) EACH(fmla, 27, e, 3)
#define MINS_ONE(a, b, c, e)                                                    \
    "ldr s11, [%[xd], %[xm]]\n" BY_ONE(fmla, 24, a, 11) BY_ONE(fmla, 25, b, 11) \
    BY_ONE(fmla, 26, c, 11) BY_ONE(fmla, 27, e, 11)
#define NEGATE(a) "fneg v" #a ".4s, v" #a ".4s\n"

#define ONE(name, w_bytes, count_of_blocks, constants, super, block)                                          \
    DOTPROD static void name(const quant_tile *t) {                                                           \
        const int8_t *w = t->q, *x = t->x;                                                                    \
        const uint8_t *scales = t->scales, *supers = t->supers;                                               \
        const float *xd = t->xd;                                                                              \
        const int32_t *xs = t->xs;                                                                            \
        int64_t rest = t->blocks / (count_of_blocks), count, xm = (const char *)t->xm - (const char *)t->xd;  \
        __asm__ volatile(                                                                                     \
            "ldr q12, [%[zero]]\n movi v13.16b, #15\n" constants                                              \
            "ldp q24, q25, [%[sums]]\n ldp q26, q27, [%[sums], #32]\n"                                        \
            "1:\n mov %[count], #" #count_of_blocks "\n" super "2:\n ldp q4, q5, [%[x]], #32\n" block         \
            "add %[w], %[w], #" #w_bytes "\n add %[xd], %[xd], #4\n subs %[count], %[count], #1\n b.ne 2b\n"  \
            "subs %[rest], %[rest], #1\n b.ne 1b\n"                                                           \
            "stp q24, q25, [%[sums]]\n stp q26, q27, [%[sums], #32]\n"                                        \
            : [w] "+r"(w), [scales] "+r"(scales), [supers] "+r"(supers), [rest] "+r"(rest), [x] "+r"(x),      \
              [xd] "+r"(xd), [xs] "+r"(xs), [count] "=&r"(count)                                              \
            : [sums] "r"(t->sums), [xm] "r"(xm), [zero] "r"(DOT_ZERO)                                         \
            : "memory", "cc", VECTORS);                                                                       \
    }

ONE(one_q8_0, 512, 1, "", "", ZEROS_ONE BYTES_ONE(0, 4) BYTES_ONE(256, 5) HALVES_TO(scales, 0, 1, 2, 3) SCALE_ONE(16, 17, 18, 19))
ONE(one_q4_0, 256, 1, "fmov v15.4s, #-8.0\n", "",
    ZEROS_ONE ALL_NIBBLES_ONE HALVES_TO(scales, 0, 1, 2, 3)
    EACH(fmul, 20, 0, 15) EACH(fmul, 21, 1, 15) EACH(fmul, 22, 2, 15) EACH(fmul, 23, 3, 15)
    SCALE_ONE(16, 17, 18, 19) MINS_ONE(20, 21, 22, 23))
ONE(one_q4_1, 256, 1, "", "",
    ZEROS_ONE ALL_NIBBLES_ONE HALVES_TO(scales, 0, 1, 2, 3) SCALE_ONE(16, 17, 18, 19)
    HALVES_TO(scales, 0, 1, 2, 3) MINS_ONE(0, 1, 2, 3))

/* v14, v15: for BYTES_TIMES; v28-v31 and v20-v23: d and -dmin of a super-block. */
ONE(one_q4_k, 256, 8, "movi v14.8h, #0x4b, lsl #8\n movi v15.4s, #0x4b, lsl #24\n",
    HALVES_TO(supers, 28, 29, 30, 31) HALVES_TO(supers, 20, 21, 22, 23) NEGATE(20) NEGATE(21) NEGATE(22) NEGATE(23),
    ZEROS_ONE ALL_NIBBLES_ONE "ldp q6, q7, [%[scales]], #32\n" BYTES_TIMES(6, 14, 28, 29, 30, 31)
    SCALE_ONE(16, 17, 18, 19) BYTES_TIMES(7, 14, 20, 21, 22, 23) MINS_ONE(0, 1, 2, 3))

/* Six bits. Vector k of the upper two: low halves k and 8 + k, high halves k and 8 + k. v14: bits 4 and 5; v16-v19 are of
 * the first 16 columns, v20-v23 of the last, and begin less 32 times the sum of x, which the quants are too much. */
#define SIX(dots_first, dots_last, k, lane, next)                                                          \
    "ldr q0, [%[w], #16 * " #k "]\n ldr q1, [%[w], #128 + 16 * " #k "]\n ldr q2, [%[w], #256 + 16 * " #k "]\n" \
    "shl v3.16b, v2.16b, #4\n shl v8.16b, v2.16b, #2\n ushr v9.16b, v2.16b, #2\n"                          \
    LOW_AND_HIGH(0, 10) LOW_AND_HIGH(1, 11)                                                                \
    "bit v0.16b, v3.16b, v14.16b\n bit v1.16b, v8.16b, v14.16b\n bit v10.16b, v2.16b, v14.16b\n bit v11.16b, v9.16b, v14.16b\n" \
    DOT(dots_first, 0, 4, lane) DOT(dots_first, 1, 4, next) DOT(dots_last, 10, 5, lane) DOT(dots_last, 11, 5, next)
#define LESS_32_X(a, b, c, e)                                                                              \
    "ld1r {v6.4s}, [%[xs]], #4\n shl v6.4s, v6.4s, #5\n sub v" #a ".4s, v12.4s, v6.4s\n mov v" #b ".16b, v" #a ".16b\n" \
    "mov v" #c ".16b, v" #a ".16b\n mov v" #e ".16b, v" #a ".16b\n"
#define SIGNED_BYTES_TIMES(from)                                                                    \
    "movi v8.16b, #128\n eor v" #from ".16b, v" #from ".16b, v8.16b\n movi v11.8h, #0x4b, lsl #8\n" \
    BYTES_TIMES(from, 11, 28, 29, 30, 31)
ONE(one_q6_k, 384, 8, "movi v14.16b, #0x30\n mov %w[count], #0x80\n movk %w[count], #0x4b00, lsl #16\n dup v15.4s, %w[count]\n",
    HALVES_TO(supers, 28, 29, 30, 31),
    LESS_32_X(16, 17, 18, 19) LESS_32_X(20, 21, 22, 23)
    SIX(16, 20, 0, 0, 2) SIX(17, 21, 1, 0, 2) SIX(18, 22, 2, 0, 2) SIX(19, 23, 3, 0, 2)
    SIX(16, 20, 4, 1, 3) SIX(17, 21, 5, 1, 3) SIX(18, 22, 6, 1, 3) SIX(19, 23, 7, 1, 3)
    "ldp q6, q7, [%[scales]], #32\n" SIGNED_BYTES_TIMES(6) SCALE_ONE(16, 17, 18, 19)
    SIGNED_BYTES_TIMES(7) SCALE_ONE(20, 21, 22, 23))

/* Of groups: a piece of the panel with scales and mins of its own, as floats where other types have theirs. */
#define LOAD_16(from) "ldp q0, q1, [%[" #from "]]\n ldp q2, q3, [%[" #from "], #32]\n"
ONE(one_group_w4, 256, 1, "", "",
    ZEROS_ONE ALL_NIBBLES_ONE LOAD_16(scales) SCALE_ONE(16, 17, 18, 19) LOAD_16(supers) MINS_ONE(0, 1, 2, 3))
ONE(one_group_w8, 512, 1, "", "", ZEROS_ONE BYTES_ONE(0, 4) BYTES_ONE(256, 5) LOAD_16(scales) SCALE_ONE(16, 17, 18, 19))

DOTPROD INLINE int one_of_groups(const quant_tile *t, const int type) {
    const quant_matrix *w = t->w;
    const uint8_t *own = t->scales;
    float d[PANEL], m[PANEL];
    if (type == W8 && needs_mins(w)) return 0;
    quant_tile group = *t;
    group.scales = (const uint8_t *)d, group.supers = (const uint8_t *)m;
    for (int64_t left = t->blocks; left > 0; left -= group.blocks) {
        group.blocks = left < w->group ? left : w->group;
        UNPACK_GROUP(w, own, d, m, halves_neon);
        (type == W4 ? one_group_w4 : one_group_w8)(&group);
        own += group_bytes(w->scale_bytes, w->has_zeros);
        group.q += group.blocks * BLOCK_ITEMS * QUANT_FORMS[type].bits / 8;
        group.x += group.blocks * BLOCK, group.xd += group.blocks, group.xm += group.blocks;
    }
    return 1;
}

/* Whether one row's product with a whole panel was made. */
DOTPROD INLINE int one_row_dot(const quant_tile *t, const int type) {
    if (type == Q8_0) return one_q8_0(t), 1;
    if (type == Q4_0) return one_q4_0(t), 1;
    if (type == Q4_1) return one_q4_1(t), 1;
    if (type == Q4_K) return one_q4_k(t), 1;
    if (type == Q6_K) return one_q6_k(t), 1;
    if (has_groups(&QUANT_FORMS[type])) return one_of_groups(t, type);
    return 0;
}

DOTPROD INLINE void tile_dot(const quant_tile *t, int rows, const int kind, const int bits) {
    (kind == PLAIN ? four_plain : kind == HALVES ? four_halves : bits == 4 ? four_nibbles : four_mins)(t, rows);
}

#endif
