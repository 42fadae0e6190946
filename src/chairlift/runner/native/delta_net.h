/* Gated delta nets: what their kernels share. runner/mixers/tiles.py says what is kept and where.
 *
 *     half of a request    | pages of a tile's rows | pages of the state before it |    each page: a row of every memory
 *     rows of a tile       | channels, strengths, decays | ... |
 *     a state              | heads [keys, values] float32 | the last inputs of the convolution |
 */
#ifndef CHAIRLIFT_DELTA_NET_H
#define CHAIRLIFT_DELTA_NET_H

#include "kernels.h"

/* As in delta_net.py. */
typedef struct {
    const float *taps;         /* [num_taps][channels], the oldest first */
    const float *decay, *bias; /* [heads] */
    const float *gain;         /* [value_dim] */
    int64_t key_heads, heads, neighbours; /* head h has key head h / neighbours % key_heads */
    int64_t key_dim, value_dim, num_taps, size; /* size: tokens of a tile */
    int64_t num_pages, num_tile_pages;                            /* of a half, those of rows first */
    int64_t num_memories;
    struct {
        char *at;
        int64_t bytes; /* of a page */
    } memories[];
} delta_net;

/* A state that is to be written to further pages when a chunk passes there. */
typedef struct {
    int64_t chunk, position;
    const int64_t *pages;
} delta_write;

typedef struct {
    const delta_net *net;
    const char *inputs, *rates; /* [rows][channels, gates], [rows][strengths, decays] */
    char *out;                  /* [rows][heads * value_dim] */
    const int32_t *starts, *contexts;
    const int64_t *tables; /* [chunks][2][num_pages] */
    const delta_write *writes;
    int num_writes;
    float eps;
    size_t element; /* bytes of a number of the model */
    int64_t channels, row, page_bytes, state_bytes;
} delta_job;

/* A chunk: positions start .. end, in tiles first .. last; its first row in the job. */
typedef struct {
    int64_t start, end, first, last, row;
    const int64_t *rows, *state; /* pages of the half that it starts from */
} delta_chunk;

static inline delta_chunk delta_chunk_at(const delta_job *job, int index) {
    const delta_net *net = job->net;
    int64_t row = job->starts[index], end = job->contexts[index], start = end - (job->starts[index + 1] - row);
    int64_t first = start / net->size, last = end / net->size;
    const int64_t *rows = job->tables + (2 * index + first % 2) * net->num_pages;
    return (delta_chunk){start, end, first, last, row, rows, rows + net->num_tile_pages};
}

/* The half that the next token after a chunk reads. */
static inline const int64_t *delta_next_half(const delta_job *job, const delta_chunk *chunk, int index) {
    return job->tables + (2 * index + chunk->last % 2) * job->net->num_pages;
}

/* The byte at this offset of pages, and how many follow it in its memory. */
static inline char *delta_byte(const delta_job *job, const int64_t *pages, int64_t offset, int64_t *left) {
    uint32_t whole = (uint32_t)offset, bytes = (uint32_t)job->page_bytes; /* 64 bits take four times as long to divide */
    int64_t page = pages[whole / bytes], m = 0;
    for (offset = whole % bytes; offset >= job->net->memories[m].bytes; m++) offset -= job->net->memories[m].bytes;
    *left = job->net->memories[m].bytes - offset;
    return job->net->memories[m].at + page * job->net->memories[m].bytes + offset;
}

static inline void delta_read(const delta_job *job, const int64_t *pages, int64_t offset, void *to, int64_t bytes) {
    for (int64_t left; bytes > 0; to = (char *)to + left, offset += left, bytes -= left) {
        const char *from = delta_byte(job, pages, offset, &left);
        left = left < bytes ? left : bytes;
        memcpy(to, from, (size_t)left);
    }
}

static inline void delta_put(const delta_job *job, const int64_t *pages, int64_t offset, const void *from, int64_t bytes) {
    for (int64_t left; bytes > 0; from = (const char *)from + left, offset += left, bytes -= left) {
        char *to = delta_byte(job, pages, offset, &left);
        left = left < bytes ? left : bytes;
        memcpy(to, from, (size_t)left);
    }
}

/* Numbers `from` .. `from + count` of what came in of a position, channels first: of this step, or read into `room`: of
 * steps before, or of the tile before. */
static inline const void *delta_came_in(const delta_job *job, const delta_chunk *chunk, int64_t position, int64_t from,
                                        int64_t count, void *room) {
    const delta_net *net = job->net;
    int64_t begin = chunk->first * net->size, size = (int64_t)job->element, bytes = count * size;
    if (position >= chunk->start) {
        int64_t row = chunk->row + position - chunk->start, rates = 2 * net->heads;
        int64_t width = job->channels + net->heads * net->value_dim;
        return from < job->channels ? job->inputs + (row * width + from) * size
                                    : job->rates + (row * rates + from - job->channels) * size;
    }
    if (position >= begin) {
        delta_read(job, chunk->rows, ((position - begin) * job->row + from) * size, room, bytes);
    } else if (begin > 0) {
        int64_t kept = position - begin + net->num_taps - 1;
        delta_read(job, chunk->state, job->state_bytes + (kept * job->channels + from) * size, room, bytes);
    } else {
        memset(room, 0, (size_t)bytes);
    }
    return room;
}

/* Asks memory for what came in of a tile's tokens, as far as a head needs it: pieces of rows that lie far apart. */
static inline void delta_ask(const delta_job *job, const delta_chunk *chunk, int64_t tile, int head) {
    const delta_net *net = job->net;
    int64_t size = (int64_t)job->element, keys = net->key_heads * net->key_dim, left;
    int64_t shared = head / net->neighbours % net->key_heads * net->key_dim, own = head * net->value_dim;
    int64_t firsts[] = {shared, keys + shared, 2 * keys + own, job->channels + own}; /* gates of this step's tokens alone */
    int64_t end = tile + net->size < chunk->end ? tile + net->size : chunk->end;
    for (int64_t position = tile; position < end; position++) {
        int64_t row = chunk->row + position - chunk->start, width = job->channels + net->heads * net->value_dim;
        int is_kept = position < chunk->start;
        for (int part = 0; part < 4 - is_kept; part++) {
            int64_t bytes = (part < 2 ? net->key_dim : net->value_dim) * size;
            const char *at = is_kept ? delta_byte(job, chunk->rows, ((position - tile) * job->row + firsts[part]) * size, &left)
                                     : job->inputs + (row * width + firsts[part]) * size;
            for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i);
        }
    }
}

#endif
