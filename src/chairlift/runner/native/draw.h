/* What draws a token from a row of logits: the row, what is asked, and tokens by descending value. */
#ifndef CHAIRLIFT_DRAW_H
#define CHAIRLIFT_DRAW_H

#include "kernels.h"

enum { CANDIDATES = 256 }; /* as in sampler.py: filters that reach further draw from all tokens instead */

/* The parameters of one token, with as many digits as logits have. */
typedef struct {
    uint64_t noise; /* of the position */
    float temperature, top_p, min_p;
    int64_t top_k;
} sample;

/* One row: its logits x, their weights exp((x - largest) / temperature), and the sum of each block of weights. */
typedef struct {
    const float *x;
    float *weights;
    double *sums, whole;
    int64_t n;
} weighed;

typedef struct {
    uint32_t key; /* ascending keys are descending values */
    int32_t id;
} candidate;

INLINE uint32_t descending(float value) {
    uint32_t bits;
    value += 0.0f; /* there are two zeros */
    memcpy(&bits, &value, 4);
    return ~(bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u));
}

/* draw.c: noise of an attempt, in [0, 1), and that part of the whole, below it. */
double uniform(const sample *asked, int attempt);
double mark_of(double noise, double whole);

/* draw.c: by key; equal keys stay in order. The result is in `items`; `spare` holds as many. */
void sort_by_key(candidate *items, candidate *spare, int count);

/* draw_in_order.c: the token at the first attempt's noise among all that the filters keep, most likely first.
 * `is_wide`: they keep the last of as many CANDIDATES, or one that is as likely. */
int64_t draw_in_order(const sample *asked, const weighed *row, int *is_wide);

#endif
