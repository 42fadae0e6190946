/* Products of bf16 matrices that are held as tiles; linear.c has the layout. */
#ifndef CHAIRLIFT_LINEAR_H
#define CHAIRLIFT_LINEAR_H

#include "kernels.h"

enum {
    PANEL = 32,
    STEP = 32,
    STEP_ITEMS = PANEL * STEP, /* elements of one step of a panel */
};

typedef struct {
    const uint16_t *x, *w;
    const uint16_t *bias; /* or NULL */
    void *y;
    int64_t m, n, k, x_stride;
    int num_panels, panels_per_chunk, is_float;
} linear_job;

void linear_chunk_amx(void *job, int index); /* linear_amx.c */
void linear_chunk_arm(void *job, int index); /* linear_arm.c */

#endif
