/* A tile of up to four rows without dot products of bytes.
 *
 * Outputs are in vectors of four. As many of these are summed at once as leave room for the sums of all rows: two for
 * three or four rows, four for fewer.
 */
#ifndef CHAIRLIFT_QUANT_NEON_H
#define CHAIRLIFT_QUANT_NEON_H

#include "quant.h"

/* Four outputs: sums += w [4][4] . x [4], the four bytes of one lane of x. */
INLINE int32x4_t dot_widened(int32x4_t sums, int8x16_t w, int8x16_t x) {
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    return vaddq_s32(sums, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}

#define DOT_LANE(sums, w, x, lane) \
    dot_widened(sums, w, vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), lane)))

/* Step s of a block: four outputs, four columns. */
INLINE int8x16_t items_neon(const int8_t *w, int s, const int bits) {
    if (bits == 8) return vld1q_s8(w + s * 64);
    uint8x16_t two = vreinterpretq_u8_s8(vld1q_s8(w + s % 4 * 64));
    return vreinterpretq_s8_u8(s < 4 ? vandq_u8(two, vdupq_n_u8(15)) : vshrq_n_u8(two, 4));
}

INLINE void tile_rows_neon(const quant_tile *t, const int rows, const int wide, const int kind,
                                   const int bits) {
    for (int v = 0; v < 4; v += wide) {
        float32x4_t sums[4][4];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < wide; i++) sums[r][i] = vld1q_f32(t->sums + r * PANEL + 4 * (v + i));
        for (int b = 0; b < t->count; b++) {
            const int8_t *w = t->q + b * BLOCK_ITEMS * bits / 8 + 16 * v;
            int32x4_t dots[4][4];
            if (v == 0 && rows <= 2) prefetch(w, BLOCK_ITEMS * bits / 8); /* more rows hide the wait */
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) { /* 16 columns */
                int8x16_t x[4];
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) x[r] = vld1q_s8(t->x + (r * t->blocks + b) * BLOCK + 16 * h);
                if (h == 0 || kind == HALVES)
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
                        for (int i = 0; i < wide; i++) dots[r][i] = vdupq_n_s32(0);
#define STEP(lane)                                                                              \
    _Pragma("GCC unroll 4") for (int i = 0; i < wide; i++) {                                    \
        int8x16_t items = items_neon(w + 16 * i, 4 * h + lane, bits);                          \
        _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++)                                  \
            dots[r][i] = DOT_LANE(dots[r][i], items, x[r], lane);                               \
    }
                STEP(0)
                STEP(1)
                STEP(2)
                STEP(3)
#undef STEP
                if (h == 0 && kind != HALVES) continue;
                const float *scales = kind == HALVES ? t->d + (2 * b + h) * PANEL : t->d + b * PANEL;
#pragma GCC unroll 4
                for (int i = 0; i < wide; i++) {
                    float32x4_t d = vld1q_f32(scales + 4 * (v + i));
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++)
                        sums[r][i] = vfmaq_f32(sums[r][i], vcvtq_f32_s32(dots[r][i]),
                                               vmulq_n_f32(d, t->xd[r * t->blocks + b]));
                }
            }
            if (kind == MINS)
#pragma GCC unroll 4
                for (int i = 0; i < wide; i++) {
                    float32x4_t m = vld1q_f32(t->m + b * PANEL + 4 * (v + i));
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++) sums[r][i] = vfmaq_n_f32(sums[r][i], m, t->xm[r * t->blocks + b]);
                }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int i = 0; i < wide; i++) vst1q_f32(t->sums + r * PANEL + 4 * (v + i), sums[r][i]);
    }
}

INLINE void tile_neon(const quant_tile *t, int rows, const int kind, const int bits) {
    switch (rows) {
    case 1:
        tile_rows_neon(t, 1, 4, kind, bits);
        break;
    case 2:
        tile_rows_neon(t, 2, 4, kind, bits);
        break;
    case 3:
        tile_rows_neon(t, 3, 2, kind, bits);
        break;
    default:
        tile_rows_neon(t, 4, 2, kind, bits);
    }
}

#endif
