/* What adapters add to a product: B (A x), for the rows of each.
 *
 * The rows of an adapter are gathered and multiplied by its matrices together:
 *
 *     rows of x -> gathered [n, width] -> low [n, ranks of all parts] -> of a part [n, ranks] -> sum [n, rows] -> added
 *
 * Each of these is rounded as any product is. A row's numbers do not depend on who else has its adapter.
 */
#include "kernels.h"

/* As in adapters.py. */
typedef struct {
    const void *up;         /* [rows, ranks] */
    int64_t first, rows;    /* of the whole matrix */
    int64_t from, ranks;    /* of those of all parts */
} adapter_part;

typedef struct {
    const void *down; /* [ranks, width] */
    int64_t ranks, num_parts;
    adapter_part parts[];
} adapter_matrix;

typedef struct {
    const void *sums;
    void *out;
    const int32_t *members; /* rows of out; NULL: all */
    int64_t first, count, width;
    int is_bf16;
} add_job;

static void add_row(void *arg, int index) {
    const add_job *job = arg;
    int64_t row = job->members ? job->members[index] : index, from = (int64_t)index * job->count;
    int64_t to = row * job->width + job->first;
    if (job->is_bf16) {
        const uint16_t *sums = (const uint16_t *)job->sums + from;
        uint16_t *out = (uint16_t *)job->out + to;
        for (int64_t i = 0; i < job->count; i++) out[i] = to_bf16(from_bf16(out[i]) + from_bf16(sums[i]));
    } else {
        const float *sums = (const float *)job->sums + from;
        float *out = (float *)job->out + to;
        for (int64_t i = 0; i < job->count; i++) out[i] += sums[i];
    }
}

static void add_matrix(const adapter_matrix *matrix, const void *x, void *out, const int32_t *members, int count,
                       int64_t width, int64_t num_outputs, int is_bf16) {
    size_t size = is_bf16 ? 2 : 4, line = (size_t)width * size, n = (size_t)count;
    int64_t most_rows = 0, most_ranks = 0;
    for (int64_t p = 0; p < matrix->num_parts; p++) {
        if (matrix->parts[p].rows > most_rows) most_rows = matrix->parts[p].rows;
        if (matrix->parts[p].ranks > most_ranks) most_ranks = matrix->parts[p].ranks;
    }
    char *gathered = scratch(SCRATCH_ADAPTERS, n * (size_t)(width + matrix->ranks + most_ranks + most_rows) * size);
    char *low = gathered + n * line, *piece = low + n * (size_t)matrix->ranks * size;
    char *sums = piece + n * (size_t)most_ranks * size;
    if (members) {
        for (size_t i = 0; i < n; i++) memcpy(gathered + i * line, (const char *)x + (size_t)members[i] * line, line);
        x = gathered;
    }
    chairlift_product(x, matrix->down, NULL, low, count, matrix->ranks, width, is_bf16, !is_bf16);
    for (int64_t p = 0; p < matrix->num_parts; p++) {
        const adapter_part *part = matrix->parts + p;
        size_t ranks = (size_t)part->ranks * size;
        for (size_t i = 0; i < n; i++)
            memcpy(piece + i * ranks, low + (i * (size_t)matrix->ranks + (size_t)part->from) * size, ranks);
        chairlift_product(piece, part->up, NULL, sums, count, part->rows, part->ranks, is_bf16, !is_bf16);
        add_job job = {sums, out, members, part->first, part->rows, num_outputs, is_bf16};
        pool_run(add_row, &job, count);
    }
}

/* x [rows, width], slots [rows]: -1 where there is no adapter, matrices [num_slots]: NULL where it adds nothing
 * -> added to out [rows, num_outputs] */
EXPORT void chairlift_adapters(const void *x, void *out, const int32_t *slots, const void *const *matrices, int rows,
                               int64_t width, int64_t num_outputs, int num_slots, int is_bf16) {
    int32_t *members = scratch(SCRATCH_PAIRS, (size_t)rows * sizeof(int32_t));
    for (int slot = 0; slot < num_slots; slot++) {
        if (!matrices[slot]) continue;
        int count = 0;
        for (int row = 0; row < rows; row++)
            if (slots[row] == slot) members[count++] = row;
        if (count)
            add_matrix(matrices[slot], x, out, count == rows ? NULL : members, count, width, num_outputs, is_bf16);
    }
}
