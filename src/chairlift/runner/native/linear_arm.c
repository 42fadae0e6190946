/* Products of bf16 matrices by dot products of pairs (bfdot), for four rows as products of matrices (bfmmla), which add
 * the same pairs in the same order with the same roundings. Tiles as in linear.c. */
#include "linear.h"

#if defined(__aarch64__)

#define BF16 __attribute__((target("arch=armv8.2-a+bf16")))

/* Up to three rows, 16 outputs: sums [rows][16] */
BF16 INLINE void sum_rows(const linear_job *job, const uint16_t *x, const uint16_t *w, int64_t steps, float *sums,
                          const int rows) {
    float32x4_t totals[3][4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) totals[r][v] = vdupq_n_f32(0);
    for (int64_t s = 0; s < steps; s++, w += STEP_ITEMS)
        for (int eight = 0; eight < STEP; eight += 8) { /* columns */
            bfloat16x8_t columns[3];
            for (int r = 0; r < rows; r++)
                columns[r] = vreinterpretq_bf16_u16(vld1q_u16(x + r * job->x_stride + s * STEP + eight));
#define PAIR(lane)                                                                                        \
    for (int v = 0; v < 4; v++) {                                                                         \
        bfloat16x8_t four = vreinterpretq_bf16_u16(vld1q_u16(w + (eight / 2 + lane) * 32 + 8 * v));       \
        for (int r = 0; r < rows; r++) totals[r][v] = vbfdotq_laneq_f32(totals[r][v], four, columns[r], lane); \
    }
            PAIR(0)
            PAIR(1)
            PAIR(2)
            PAIR(3)
#undef PAIR
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < 4; v++) vst1q_f32(sums + r * PANEL + 4 * v, totals[r][v]);
}

/* Four rows, 16 outputs. A product of matrices takes two rows and two outputs, 4 columns of each:
 *
 *     [x0; x1] . [w0; w1]^T = x0.w0, x0.w1, x1.w0, x1.w1
 */
BF16 static void sum_four(const linear_job *job, const uint16_t *x, const uint16_t *w, int64_t steps, float *sums) {
    float32x4_t totals[2][8]; /* [pair of rows][pair of outputs] */
    for (int p = 0; p < 16; p++) totals[p / 8][p % 8] = vdupq_n_f32(0);
    for (int64_t s = 0; s < steps; s++, w += STEP_ITEMS)
        for (int four = 0; four < STEP; four += 4) { /* columns */
            bfloat16x8_t pairs[2];
            for (int p = 0; p < 2; p++) {
                const uint16_t *from = x + 2 * p * job->x_stride + s * STEP + four;
                pairs[p] = vreinterpretq_bf16_u16(vcombine_u16(vld1_u16(from), vld1_u16(from + job->x_stride)));
            }
            for (int v = 0; v < 4; v++) {
                uint32x4_t low = vreinterpretq_u32_u16(vld1q_u16(w + four / 2 * 32 + 8 * v));
                uint32x4_t high = vreinterpretq_u32_u16(vld1q_u16(w + (four / 2 + 1) * 32 + 8 * v));
                bfloat16x8_t first = vreinterpretq_bf16_u32(vzip1q_u32(low, high));
                bfloat16x8_t second = vreinterpretq_bf16_u32(vzip2q_u32(low, high));
                for (int p = 0; p < 2; p++) {
                    totals[p][2 * v] = vbfmmlaq_f32(totals[p][2 * v], pairs[p], first);
                    totals[p][2 * v + 1] = vbfmmlaq_f32(totals[p][2 * v + 1], pairs[p], second);
                }
            }
        }
    for (int p = 0; p < 2; p++)
        for (int v = 0; v < 4; v++) {
            float64x2_t a = vreinterpretq_f64_f32(totals[p][2 * v]), b = vreinterpretq_f64_f32(totals[p][2 * v + 1]);
            vst1q_f32(sums + 2 * p * PANEL + 4 * v, vreinterpretq_f32_f64(vzip1q_f64(a, b)));
            vst1q_f32(sums + (2 * p + 1) * PANEL + 4 * v, vreinterpretq_f32_f64(vzip2q_f64(a, b)));
        }
}

static void write_row(const linear_job *job, int64_t row, int panel, const float *sums) {
    int64_t first = (int64_t)panel * PANEL, at = row * job->n + first;
    int count = job->n - first < PANEL ? (int)(job->n - first) : PANEL;
    for (int c = 0; c < count; c++) {
        float sum = job->bias ? sums[c] + from_bf16(job->bias[first + c]) : sums[c];
        if (job->is_float)
            ((float *)job->y)[at + c] = sum;
        else
            ((uint16_t *)job->y)[at + c] = to_bf16(sum);
    }
}

BF16 void linear_chunk_arm(void *arg, int index) {
    const linear_job *job = arg;
    float sums[4 * PANEL];
    int64_t steps = (job->k + STEP - 1) / STEP;
    int last = min_int((index + 1) * job->panels_per_chunk, job->num_panels);
    for (int panel = index * job->panels_per_chunk; panel < last; panel++)
        for (int64_t row = 0; row < job->m; row += 4) {
            int rows = job->m - row < 4 ? (int)(job->m - row) : 4;
            const uint16_t *x = job->x + row * job->x_stride;
            for (int half = 0; half < 2; half++) {
                const uint16_t *w = job->w + panel * steps * STEP_ITEMS + half * (STEP_ITEMS / 2);
                float *to = sums + half * (PANEL / 2);
                if (rows == 4)
                    sum_four(job, x, w, steps, to);
                else if (rows == 3)
                    sum_rows(job, x, w, steps, to, 3);
                else if (rows == 2)
                    sum_rows(job, x, w, steps, to, 2);
                else
                    sum_rows(job, x, w, steps, to, 1);
            }
            for (int r = 0; r < rows; r++) write_row(job, row + r, panel, sums + r * PANEL);
        }
}

#endif
