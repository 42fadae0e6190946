/* Gated delta nets: the heads of all chunks, then what their next tokens need of what came in. */
#include "delta_net.h"

#include <math.h>

enum { PIECE = 32 }; /* rows of a state that are passed over at once */

#define KERNELS "delta_net.inc"
#include "sets.inc"

/* The last inputs of the convolution before this position, behind the state in these pages. */
static void put_inputs(const delta_job *job, const delta_chunk *chunk, int64_t position, const int64_t *pages) {
    int64_t count = job->net->num_taps - 1, bytes = job->channels * (int64_t)job->element;
    char *inputs = scratch(SCRATCH_DELTA, (size_t)(count * bytes));
    for (int64_t i = 0; i < count; i++) {
        char *own = inputs + i * bytes;
        const void *at = delta_came_in(job, chunk, position - count + i, 0, job->channels, own);
        if (at != own) memcpy(own, at, (size_t)bytes);
    }
    delta_put(job, pages, job->state_bytes, inputs, count * bytes);
}

static void put_rows(const delta_job *job, const delta_chunk *chunk, int64_t from, int64_t to, const int64_t *pages) {
    int64_t rates = job->row - job->channels, size = (int64_t)job->element;
    int64_t width = job->channels + job->net->heads * job->net->value_dim;
    for (int64_t position = from; position < to; position++) {
        int64_t row = chunk->row + position - chunk->start, at = position % job->net->size * job->row * size;
        delta_put(job, pages, at, job->inputs + row * width * size, job->channels * size);
        delta_put(job, pages, at + job->channels * size, job->rates + row * rates * size, rates * size);
    }
}

/* What overwrites the half that a chunk reads comes last. */
static void keep_chunk(void *arg, int index) {
    const delta_job *job = arg;
    delta_chunk chunk = delta_chunk_at(job, index);
    int64_t size = job->net->size, middle = (chunk.first + 1) * size, end = chunk.last * size;
    for (int w = 0; w < job->num_writes; w++)
        if (job->writes[w].chunk == index) put_inputs(job, &chunk, job->writes[w].position, job->writes[w].pages);
    const int64_t *next = delta_next_half(job, &chunk, index);
    if (chunk.last > chunk.first) put_inputs(job, &chunk, end, next + job->net->num_tile_pages);
    if (chunk.last <= chunk.first + 1) /* drafts may pass the end of a tile, and be wrong */
        put_rows(job, &chunk, chunk.start, chunk.end < middle ? chunk.end : middle, chunk.rows);
    if (chunk.last > chunk.first) put_rows(job, &chunk, chunk.start > end ? chunk.start : end, chunk.end, next);
}

EXPORT void chairlift_delta_net(const void *net, const void *inputs, const void *rates, void *out,
                                const int32_t *starts, const int32_t *contexts, const int64_t *tables,
                                const void *writes, int num_writes, int num_chunks, float eps, int is_bf16) {
    const delta_net *own = net;
    int64_t channels = 2 * own->key_heads * own->key_dim + own->heads * own->value_dim, page_bytes = 0;
    for (int64_t m = 0; m < own->num_memories; m++) page_bytes += own->memories[m].bytes;
    delta_job job = {own, inputs, rates, out, starts, contexts, tables, writes, num_writes, eps, is_bf16 ? 2 : 4,
                     channels, channels + 2 * own->heads, page_bytes,
                     own->heads * own->key_dim * own->value_dim * (int64_t)sizeof(float)};
    pool_run(CHOOSE(head, is_bf16), &job, num_chunks * (int)own->heads);
    pool_run(keep_chunk, &job, num_chunks);
}
