/* Mixtures of experts: which of them each row chooses, and the sum of what they give.
 *
 * The rows of an expert are gathered and multiplied by its matrices together, so that each matrix is read once and
 * those of experts that no row chose are not read at all:
 *
 *     rows of x -> gathered [n, E] -> gate and up [n, 2F] -> active [n, F] -> part of each choice [rows * chosen, E]
 *
 * Of equal scores the first expert's goes first; weights and parts of a row are added up in the order of its choices.
 */
#include "kernels.h"

#include <math.h>

enum { SOFTMAX, CHOSEN, SIGMOID }; /* as in model.py */
enum { PACKED = -1 };              /* a part that is not in blocks */

typedef struct {
    const float *logits, *correction, *factors; /* the last two may be NULL */
    int32_t *ids;
    float *weights;
    int num_experts, num_chosen, scores, is_normalised, num_groups, num_chosen_groups;
    float factor;
} route_job;

static float exponential_of(float x) { return exponential(x < 88.0f ? x : 88.0f, 0); }

/* The first of the largest of `count` scores. */
static int first_of_largest(const float *scores, int count) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (scores[i] > scores[best]) best = i;
    return best;
}

/* Leaves -inf in all groups but those whose two best scores add up to most. */
static void keep_best_groups(const route_job *job, float *ranked) {
    int size = job->num_experts / job->num_groups;
    float *sums = scratch(SCRATCH_ITEMS, (size_t)job->num_groups * sizeof(float));
    for (int g = 0; g < job->num_groups; g++) {
        const float *own = ranked + g * size;
        int best = first_of_largest(own, size);
        float second = -INFINITY;
        for (int i = 0; i < size; i++)
            if (i != best && own[i] > second) second = own[i];
        sums[g] = own[best] + second;
    }
    for (int n = 0; n < job->num_chosen_groups; n++) sums[first_of_largest(sums, job->num_groups)] = -INFINITY;
    for (int g = 0; g < job->num_groups; g++)
        if (sums[g] != -INFINITY)
            for (int i = 0; i < size; i++) ranked[g * size + i] = -INFINITY;
}

static void route_row(void *arg, int row) {
    const route_job *job = arg;
    int count = job->num_experts;
    const float *logits = job->logits + (int64_t)row * count;
    float *scores = scratch(SCRATCH_SCORES, 2 * (size_t)count * sizeof(float)), *ranked = scores + count;
    float top = logits[first_of_largest(logits, count)], total = 0.0f;
    for (int i = 0; i < count; i++) {
        scores[i] = logits[i];
        if (job->scores == SOFTMAX) total += scores[i] = exponential_of(logits[i] - top);
        if (job->scores == SIGMOID) scores[i] = 1.0f / (1.0f + exponential_of(-logits[i]));
    }
    for (int i = 0; i < count; i++) {
        if (job->scores == SOFTMAX) scores[i] /= total;
        ranked[i] = job->correction ? scores[i] + job->correction[i] : scores[i];
    }
    if (job->num_groups > 1) keep_best_groups(job, ranked);
    int32_t *ids = job->ids + (int64_t)row * job->num_chosen;
    float *weights = job->weights + (int64_t)row * job->num_chosen, sum = 0.0f;
    for (int n = 0; n < job->num_chosen; n++) {
        ids[n] = first_of_largest(ranked, count);
        ranked[ids[n]] = -INFINITY;
        weights[n] = job->scores == CHOSEN ? exponential_of(scores[ids[n]] - scores[ids[0]]) : scores[ids[n]];
        sum += weights[n];
    }
    int is_divided = job->is_normalised || job->scores == CHOSEN;
    for (int n = 0; n < job->num_chosen; n++) {
        weights[n] = weights[n] / (is_divided ? sum + 1e-20f : 1.0f) * job->factor;
        if (job->factors) weights[n] *= job->factors[ids[n]];
    }
}

/* logits [rows, num_experts] -> ids and weights [rows, num_chosen], best first */
EXPORT void chairlift_route(const float *logits, const float *correction, const float *factors, int32_t *ids,
                            float *weights, int rows, int num_experts, int num_chosen, int scores, int is_normalised,
                            int num_groups, int num_chosen_groups, float factor) {
    route_job job = {logits, correction, factors, ids, weights, num_experts, num_chosen, scores, is_normalised,
                     num_groups, num_chosen_groups, factor};
    pool_run(route_row, &job, rows);
}

/* Rows of a matrix that are kept in one way; as in experts.py. */
typedef struct {
    int64_t type; /* of blocks, or PACKED */
    const void *w;
    int64_t rows;
    const void *bias; /* of these rows, or NULL; float32 of blocks, else as x is */
} expert_part;

/* y [m, n] of the parts of a matrix, n their rows together. */
static void multiply(const expert_part *parts, int num_parts, const void *x, void *y, int64_t m, int64_t k, int is_bf16) {
    int64_t n = 0;
    for (int p = 0; p < num_parts; p++) n += parts[p].rows;
    for (int p = 0; p < num_parts; p++) {
        const expert_part *part = parts + p;
        if (part->type == PACKED)
            chairlift_product(x, part->w, part->bias, y, m, part->rows, k, is_bf16, !is_bf16);
        else
            chairlift_quant_product((int)part->type, x, part->w, part->bias, y, m, part->rows, k, n, is_bf16, is_bf16);
        y = (char *)y + part->rows * (is_bf16 ? 2 : 4);
    }
}

typedef struct {
    const char *parts;
    const float *weights;
    const void *shared;
    void *out;
    int64_t width;
    int chosen, is_bf16;
} combine_job;

static void combine_row(void *arg, int row) {
    const combine_job *job = arg;
    int64_t width = job->width, first = (int64_t)row * width;
    const float *weights = job->weights + (int64_t)row * job->chosen;
    float *total = scratch(SCRATCH_SCORES, (size_t)width * sizeof(float));
    for (int64_t i = 0; i < width; i++)
        total[i] = !job->shared ? 0.0f
                   : job->is_bf16 ? from_bf16(((const uint16_t *)job->shared)[first + i])
                                  : ((const float *)job->shared)[first + i];
    for (int n = 0; n < job->chosen; n++) {
        int64_t from = ((int64_t)row * job->chosen + n) * width;
        float weight = weights[n];
        if (job->is_bf16)
            for (int64_t i = 0; i < width; i++) total[i] += weight * from_bf16(((const uint16_t *)job->parts)[from + i]);
        else
            for (int64_t i = 0; i < width; i++) total[i] += weight * ((const float *)job->parts)[from + i];
    }
    for (int64_t i = 0; i < width; i++)
        if (job->is_bf16)
            ((uint16_t *)job->out)[first + i] = to_bf16(total[i]);
        else
            ((float *)job->out)[first + i] = total[i];
}

/* x [rows, width], ids and weights [rows, chosen] -> out [rows, width], `shared` added unless it is NULL.
 * gate_up: parts_of_gate_up parts of each expert; down: one of each. inner: F. */
EXPORT void chairlift_experts(const void *x, const int32_t *ids, const float *weights, const void *shared, void *out,
                              const void *gate_up, const void *down, int rows, int64_t width, int64_t inner,
                              int num_experts, int chosen, int parts_of_gate_up, int parts_of_down, int activation,
                              int is_bf16) {
    size_t size = is_bf16 ? 2 : 4, line = (size_t)width * size;
    int num_pairs = rows * chosen;
    char *gathered = scratch(SCRATCH_EXPERTS, (size_t)rows * ((size_t)width + 3 * (size_t)inner) * size +
                                                  (size_t)(rows + num_pairs) * line);
    char *both = gathered + (size_t)rows * line, *active = both + 2 * (size_t)rows * (size_t)inner * size;
    char *given = active + (size_t)rows * (size_t)inner * size, *parts = given + (size_t)rows * line;
    int32_t *pairs = scratch(SCRATCH_PAIRS, (size_t)num_pairs * sizeof(int32_t));
    for (int expert = 0; expert < num_experts; expert++) {
        int count = 0;
        for (int pair = 0; pair < num_pairs; pair++)
            if (ids[pair] == expert) pairs[count++] = pair;
        if (!count) continue;
        for (int i = 0; i < count; i++)
            memcpy(gathered + (size_t)i * line, (const char *)x + (size_t)(pairs[i] / chosen) * line, line);
        multiply((const expert_part *)gate_up + expert * parts_of_gate_up, parts_of_gate_up, gathered, both, count, width,
                 is_bf16);
        chairlift_activate(both, active, count, inner, activation, 1, is_bf16);
        multiply((const expert_part *)down + expert * parts_of_down, parts_of_down, active, given, count, inner, is_bf16);
        for (int i = 0; i < count; i++) memcpy(parts + (size_t)pairs[i] * line, given + (size_t)i * line, line);
    }
    combine_job job = {parts, weights, shared, out, width, chosen, is_bf16};
    pool_run(combine_row, &job, rows);
}
