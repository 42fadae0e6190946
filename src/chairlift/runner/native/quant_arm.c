/* Products of quantised matrices by NEON: dot products of bytes where there are, products of matrices (i8mm) for four
 * rows where there are, else widening multiplications. */
#include "quant.h"

#if defined(__aarch64__)

#define DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#define I8MM __attribute__((target("arch=armv8.2-a+dotprod+i8mm")))

INLINE void halves_neon(const uint8_t *from, float *to) {
    for (int i = 0; i < PANEL; i += 4) vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from + 2 * i))));
}

#include "quant_dot.h"
#include "quant_neon.h"

/* As `scaled`: the bits of 2^23 + byte, and off what is too much. */
INLINE void scaled_neon(const uint8_t *from, const float *d, float *to, const int is_signed) {
    uint8x16_t bytes = vld1q_u8(from), none = vdupq_n_u8(0);
    if (is_signed) bytes = veorq_u8(bytes, vdupq_n_u8(128)); /* 128 more */
    float32x4_t base = vdupq_n_f32(is_signed ? 8388736.0f : 8388608.0f);
    uint16x8_t halves[2] = {vreinterpretq_u16_u8(vzip1q_u8(bytes, none)), vreinterpretq_u16_u8(vzip2q_u8(bytes, none))};
    for (int i = 0; i < 4; i++) {
        uint16x8_t half = halves[i / 2], upper = vdupq_n_u16(0x4b00);
        float32x4_t value = vreinterpretq_f32_u16(i % 2 ? vzip2q_u16(half, upper) : vzip1q_u16(half, upper));
        vst1q_f32(to + 4 * i, vmulq_f32(vsubq_f32(value, base), vld1q_f32(d + 4 * i)));
    }
}

/* As `unpack_block`. */
INLINE void unpack_block_neon(const uint8_t *from, int8_t *to, const int bits) {
    const uint8x16_t low = vdupq_n_u8(15), upper = vdupq_n_u8(0x30), all = vdupq_n_u8(32);
    if (bits != 6) return unpack_block(from, to, bits);
    for (int k = 0; k < 8; k++) {
        uint8x16_t a = vld1q_u8(from + 16 * k), b = vld1q_u8(from + 128 + 16 * k), two = vld1q_u8(from + 256 + 16 * k);
        uint8x16_t items[4] = {
            vbslq_u8(upper, vshlq_n_u8(two, 4), vandq_u8(a, low)),
            vbslq_u8(upper, vshlq_n_u8(two, 2), vandq_u8(b, low)),
            vbslq_u8(upper, two, vshrq_n_u8(a, 4)),
            vbslq_u8(upper, vshrq_n_u8(two, 2), vshrq_n_u8(b, 4)),
        };
        for (int t = 0; t < 4; t++) vst1q_s8(to + 128 * t + 16 * k, vreinterpretq_s8_u8(vsubq_u8(items[t], all)));
    }
}

/* As `quantise_block`. */
INLINE void quantise_block_neon(const float *x, int8_t *q, float *d, float *m, int32_t *sums) {
    float32x4_t v[8];
    int32x4_t largest = vdupq_n_s32(0);
    for (int i = 0; i < 8; i++) v[i] = vld1q_f32(x + 4 * i);
    for (int i = 0; i < 8; i++)
        largest = vmaxq_s32(largest, vandq_s32(vreinterpretq_s32_f32(v[i]), vdupq_n_s32(0x7fffffff)));
    quant_scale scale = quant_scale_of(vmaxvq_s32(largest));
    int16x8_t words[4];
    for (int i = 0; i < 8; i++) v[i] = vfmaq_n_f32(vdupq_n_f32(12582912.0f), v[i], scale.inverse);
    for (int i = 0; i < 4; i++)
        words[i] = vuzp1q_s16(vreinterpretq_s16_f32(v[2 * i]), vreinterpretq_s16_f32(v[2 * i + 1]));
    for (int i = 0; i < 2; i++) {
        vst1q_s8(q + 16 * i, vuzp1q_s8(vreinterpretq_s8_s16(words[2 * i]), vreinterpretq_s8_s16(words[2 * i + 1])));
        sums[i] = vaddvq_s16(vaddq_s16(words[2 * i], words[2 * i + 1]));
    }
    *d = scale.d, *m = scale.d * (float)(sums[0] + sums[1]);
}

#define SHARED(x) x##_neon

#define TARGET NEON
#define NAME(x) x##_neon
#define TILE_ROWS 4
#define HAS_DIRECT 1
#define ONE_ROW(tile, type) 0
#include "quant.inc"

#define halves_dot halves_neon
#define TARGET DOTPROD
#define NAME(x) x##_dot
#define TILE_ROWS 4
#define HAS_DIRECT 1
#define ONE_ROW one_row_dot
#include "quant.inc"

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

#define halves_i8mm halves_neon
#define TARGET I8MM
#define NAME(x) x##_i8mm
#define TILE_ROWS 4
#define HAS_DIRECT 1
#define ONE_ROW one_row_dot
#include "quant.inc"

quant_kernels quant_kernels_here(void) {
    int found = cpu_features();
    if (found & HAS_I8MM) return (quant_kernels){quantise_chunk_i8mm, multiply_chunk_i8mm};
    if (found & HAS_DOTPROD) return (quant_kernels){quantise_chunk_dot, multiply_chunk_dot};
    if (found & HAS_NEON) return (quant_kernels){quantise_chunk_neon, multiply_chunk_neon};
    return (quant_kernels){0};
}

#endif
