/* Runs the kernels of a step one after the other, as recorded when a step of its shape first ran. */
#include "kernels.h"

/* As in tape.py. */
enum { PRODUCT, PRODUCT_ROWS, QUANT_PRODUCT, QUANT_ROWS, NORM, ACTIVATE, ROTATE, ATTENTION, ROUTE, EXPERTS, ADAPTERS,
       GATE, DELTA_NET };

typedef struct {
    int64_t kernel;
    union {
        int64_t whole; /* pointers too */
        double real;
    } at[19]; /* arguments in order */
} tape_call;

EXPORT void chairlift_play(const tape_call *calls, int64_t count) {
    for (const tape_call *c = calls; c < calls + count; c++) {
#define L(i) c->at[i].whole
#define P(i) ((void *)(intptr_t)L(i))
#define I(i) ((int)L(i))
#define F(i) ((float)c->at[i].real)
        switch (c->kernel) {
        case PRODUCT:
            chairlift_product(P(0), P(1), P(2), P(3), L(4), L(5), L(6), I(7), I(8));
            break;
        case PRODUCT_ROWS:
            chairlift_product_rows(P(0), P(1), P(2), L(3), L(4), I(5));
            break;
        case QUANT_PRODUCT:
            chairlift_quant_product(I(0), P(1), P(2), P(3), P(4), L(5), L(6), L(7), L(8), I(9), I(10));
            break;
        case QUANT_ROWS:
            chairlift_quant_rows(I(0), P(1), P(2), P(3), L(4), L(5), I(6));
            break;
        case NORM:
            chairlift_norm(P(0), P(1), P(2), P(3), P(4), I(5), L(6), L(7), F(8), F(9), I(10), I(11));
            break;
        case ACTIVATE:
            chairlift_activate(P(0), P(1), I(2), L(3), I(4), I(5), I(6));
            break;
        case ROTATE:
            chairlift_rotate(P(0), P(1), P(2), P(3), P(4), P(5), P(6), P(7), P(8), P(9), I(10), I(11), I(12), I(13),
                             I(14), I(15), F(16), I(17), I(18));
            break;
        case ATTENTION:
            chairlift_attention(P(0), P(1), P(2), P(3), P(4), P(5), P(6), P(7), L(8), I(9), I(10), I(11), I(12), I(13),
                                F(14), F(15), I(16), I(17), I(18));
            break;
        case ROUTE:
            chairlift_route(P(0), P(1), P(2), P(3), P(4), I(5), I(6), I(7), I(8), I(9), I(10), I(11), F(12));
            break;
        case EXPERTS:
            chairlift_experts(P(0), P(1), P(2), P(3), P(4), P(5), P(6), I(7), L(8), L(9), I(10), I(11), I(12), I(13),
                              I(14), I(15));
            break;
        case ADAPTERS:
            chairlift_adapters(P(0), P(1), P(2), P(3), I(4), L(5), L(6), I(7), I(8));
            break;
        case GATE:
            chairlift_gate(P(0), P(1), I(2), L(3), L(4), I(5), I(6));
            break;
        case DELTA_NET:
            chairlift_delta_net(P(0), P(1), P(2), P(3), P(4), P(5), P(6), P(7), I(8), I(9), F(10), I(11));
            break;
        }
#undef L
#undef P
#undef I
#undef F
    }
}
