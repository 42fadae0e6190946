/* Products of quantised matrices by NEON: dot products of bytes where there are, products of matrices (i8mm) for four
 * rows where there are, else widening multiplications. */
#include "quant.h"

#if defined(__aarch64__)

#define DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#define I8MM __attribute__((target("arch=armv8.2-a+dotprod+i8mm")))

/* Four outputs: sums += w [4][4] . x [4], the four bytes of one lane of x. */
#define DOT_LANE(sums, w, x, lane) vdotq_laneq_s32(sums, w, x, lane)
#define TARGET DOTPROD
#define NAME(x) x##_dot
#include "quant_neon.inc"
#define TARGET DOTPROD
#define NAME(x) x##_dot
#define TILE_ROWS 4
#define HAS_DIRECT 1
#include "quant.inc"
#undef DOT_LANE

INLINE int32x4_t dot_widened(int32x4_t sums, int8x16_t w, int8x16_t x) {
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    return vaddq_s32(sums, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}

#define DOT_LANE(sums, w, x, lane) \
    dot_widened(sums, w, vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), lane)))
#define TARGET NEON
#define NAME(x) x##_neon
#include "quant_neon.inc"
#define TARGET NEON
#define NAME(x) x##_neon
#define TILE_ROWS 4
#define HAS_DIRECT 1
#include "quant.inc"
#undef DOT_LANE

/* Four rows, four outputs at a time. A product of matrices takes two rows and two outputs, 8 columns of each:
 *
 *     [x0; x1] . [w0; w1]^T = x0.w0, x0.w1, x1.w0, x1.w1
 */
I8MM INLINE void tile_four_i8mm(const quant_tile *t, const int kind) {
    for (int v = 0; v < 4; v++) {
        float32x4_t sums[4];
        for (int r = 0; r < 4; r++) sums[r] = vld1q_f32(t->sums + r * PANEL + 4 * v);
        for (int b = 0; b < t->count; b++) {
            const int8_t *w = t->q + b * BLOCK_ITEMS + 16 * v;
            int32x4_t dots[2][2]; /* [pair of rows][pair of outputs] */
            for (int p = 0; p < 4; p++) dots[p / 2][p % 2] = vdupq_n_s32(0);
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++) { /* 8 columns */
                int32x4_t low = vreinterpretq_s32_s8(vld1q_s8(w + 2 * s * 64));
                int32x4_t high = vreinterpretq_s32_s8(vld1q_s8(w + (2 * s + 1) * 64));
                int8x16_t first = vreinterpretq_s8_s32(vzip1q_s32(low, high));
                int8x16_t second = vreinterpretq_s8_s32(vzip2q_s32(low, high));
                for (int p = 0; p < 2; p++) {
                    const int8_t *x = t->x + (2 * p * t->blocks + b) * BLOCK + 8 * s;
                    int8x16_t pair = vcombine_s8(vld1_s8(x), vld1_s8(x + t->blocks * BLOCK));
                    dots[p][0] = vmmlaq_s32(dots[p][0], pair, first);
                    dots[p][1] = vmmlaq_s32(dots[p][1], pair, second);
                }
                if (kind == HALVES && s % 2) {
                    float32x4_t d = vld1q_f32(t->d + (2 * b + s / 2) * PANEL + 4 * v);
                    for (int r = 0; r < 4; r++) {
                        int64x2_t a = vreinterpretq_s64_s32(dots[r / 2][0]), c = vreinterpretq_s64_s32(dots[r / 2][1]);
                        int32x4_t dot = vreinterpretq_s32_s64(r % 2 ? vzip2q_s64(a, c) : vzip1q_s64(a, c));
                        sums[r] = vfmaq_f32(sums[r], vcvtq_f32_s32(dot), vmulq_n_f32(d, t->xd[r * t->blocks + b]));
                    }
                    for (int p = 0; p < 4; p++) dots[p / 2][p % 2] = vdupq_n_s32(0);
                }
            }
            if (kind == HALVES) continue;
            float32x4_t d = vld1q_f32(t->d + b * PANEL + 4 * v);
            for (int r = 0; r < 4; r++) {
                int64x2_t a = vreinterpretq_s64_s32(dots[r / 2][0]), c = vreinterpretq_s64_s32(dots[r / 2][1]);
                int32x4_t dot = vreinterpretq_s32_s64(r % 2 ? vzip2q_s64(a, c) : vzip1q_s64(a, c));
                sums[r] = vfmaq_f32(sums[r], vcvtq_f32_s32(dot), vmulq_n_f32(d, t->xd[r * t->blocks + b]));
                if (kind == MINS)
                    sums[r] = vfmaq_n_f32(sums[r], vld1q_f32(t->m + b * PANEL + 4 * v), t->xm[r * t->blocks + b]);
            }
        }
        for (int r = 0; r < 4; r++) vst1q_f32(t->sums + r * PANEL + 4 * v, sums[r]);
    }
}

I8MM INLINE void tile_i8mm(const quant_tile *t, int rows, const int kind, const int bits) {
    if (rows == 4 && bits == 8)
        tile_four_i8mm(t, kind);
    else
        tile_dot(t, rows, kind, bits);
}

#define halves_i8mm halves_dot
#define TARGET I8MM
#define NAME(x) x##_i8mm
#define TILE_ROWS 4
#define HAS_DIRECT 1
#include "quant.inc"

quant_kernels quant_kernels_here(void) {
    int found = cpu_features();
    if (found & HAS_I8MM) return (quant_kernels){quantise_chunk_i8mm, multiply_chunk_i8mm};
    if (found & HAS_DOTPROD) return (quant_kernels){quantise_chunk_dot, multiply_chunk_dot};
    if (found & HAS_NEON) return (quant_kernels){quantise_chunk_neon, multiply_chunk_neon};
    return (quant_kernels){0};
}

#endif
