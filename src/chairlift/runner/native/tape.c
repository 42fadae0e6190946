/* Runs the kernels of a step one after the other, as they were written down when a step of its shape first ran. */
#include "kernels.h"

/* As in tape.py. */
enum { PRODUCT, PRODUCT_ROWS, QUANT_PRODUCT, QUANT_ROWS, NORM, SILU_MUL, ROTATE, ATTENTION };

typedef struct {
    int64_t kernel;
    int64_t at[17]; /* arguments in order: pointers and whole numbers; */
    double number;  /* and the one that is not whole, where there is one, at whose place nothing stands */
} tape_call;

EXPORT void chairlift_play(const tape_call *calls, int64_t count) {
    for (const tape_call *c = calls; c < calls + count; c++) {
        const int64_t *a = c->at;
#define P(i) ((void *)(intptr_t)a[i])
#define I(i) ((int)a[i])
        switch (c->kernel) {
        case PRODUCT:
            chairlift_product(P(0), P(1), P(2), P(3), a[4], a[5], a[6], I(7), I(8));
            break;
        case PRODUCT_ROWS:
            chairlift_product_rows(P(0), P(1), P(2), a[3], a[4], I(5));
            break;
        case QUANT_PRODUCT:
            chairlift_quant_product(I(0), P(1), P(2), P(3), P(4), a[5], a[6], a[7], a[8], I(9), I(10));
            break;
        case QUANT_ROWS:
            chairlift_quant_rows(I(0), P(1), P(2), P(3), a[4], a[5], I(6));
            break;
        case NORM:
            chairlift_norm(P(0), P(1), P(2), P(3), I(4), a[5], (float)c->number, I(7));
            break;
        case SILU_MUL:
            chairlift_silu_mul(P(0), P(1), I(2), a[3], I(4));
            break;
        case ROTATE:
            chairlift_rotate(P(0), P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8), I(9), I(10), I(11), I(12), I(13),
                             (float)c->number, I(15), I(16));
            break;
        case ATTENTION:
            chairlift_attention(P(0), P(1), P(2), P(3), P(4), P(5), P(6), a[7], I(8), I(9), I(10), I(11), I(12),
                                (float)c->number, I(14), I(15), I(16));
            break;
        }
#undef P
#undef I
    }
}
