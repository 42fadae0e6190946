/* The entry points that library.py names and others call too; shapes and meanings are where they are defined. */
#ifndef CHAIRLIFT_ENTRIES_H
#define CHAIRLIFT_ENTRIES_H

#include <stdint.h>

int chairlift_features(int mask);
void chairlift_set_threads(int threads, int64_t spin);
void chairlift_product_pack(const void *matrix, void *packed, int64_t n, int64_t k, int is_bf16);
int64_t chairlift_quant_bytes(int type, int64_t n, int64_t k);
int64_t chairlift_quant_pack(int type, const uint8_t *const *rows, void *packed, int64_t n, int64_t k);
int64_t chairlift_groups_bytes(int type, int64_t n, int64_t k, int64_t group, int scale_bytes, int has_zeros,
                               int has_order);
void chairlift_groups_pack(int type, const uint8_t *codes, const float *scales, const int8_t *zeros,
                           const int32_t *order, void *packed, int64_t n, int64_t k, int64_t group, int scale_bytes,
                           int zero);
void chairlift_product(const void *x, const void *w, const void *bias, void *y, int64_t m, int64_t n, int64_t k,
                       int is_bf16, int is_float);
void chairlift_product_rows(const void *packed, const int64_t *ids, void *out, int64_t count, int64_t k, int is_bf16);
void chairlift_quant_product(int type, const void *x, const void *w, const float *bias, void *y, int64_t m, int64_t n,
                             int64_t k, int64_t y_stride, int x_is_bf16, int y_is_bf16);
void chairlift_quant_rows(int type, const void *packed, const int64_t *ids, void *out, int64_t count, int64_t k,
                          int is_bf16);
void chairlift_norm(const void *x, void *residual, const float *gain, const float *bias, void *out, int rows, int64_t n,
                    int64_t stride, float eps, float factor, int is_centred, int is_bf16);
void chairlift_cap(float *x, int rows, int64_t n, float cap);
void chairlift_activate(const void *x, void *out, int rows, int64_t n, int activation, int has_gate,
                        int is_bf16);
void chairlift_route(const float *logits, const float *correction, const float *factors, int32_t *ids, float *weights,
                     int rows, int num_experts, int num_chosen, int scores, int is_normalised, int num_groups,
                     int num_chosen_groups, float factor);
void chairlift_experts(const void *x, const int32_t *ids, const float *weights, const void *shared, void *out,
                       const void *gate_up, const void *down, int rows, int64_t width, int64_t inner, int num_experts,
                       int chosen, int parts_of_gate_up, int parts_of_down, int activation, int is_bf16);
void chairlift_adapters(const void *x, void *out, const int32_t *slots, const void *const *matrices, int rows,
                        int64_t width, int64_t num_outputs, int num_slots, int is_bf16);
void chairlift_rotate(const void *qkv, const float *rotation, const int64_t *positions, const int64_t *slots, void *q,
                      void *keys, void *values, const float *q_gain, const float *k_gain, const float *factors,
                      int rows, int heads, int gates, int kv_heads, int head_dim, int block_size, float eps, int is_bf16,
                      int kv_is_int8);
void chairlift_gate(void *x, const void *gates, int rows, int64_t n, int64_t stride, int is_one, int is_bf16);
void chairlift_attention(const void *q, const void *keys, const void *values, void *out, const float *sinks,
                         const int32_t *starts, const int32_t *contexts, const int32_t *tables, int64_t table_width,
                         int num_chunks, int heads,
                         int kv_heads, int head_dim, int block_size, float scale, float cap, int window,
                         int is_bf16, int kv_is_int8);
void chairlift_encoder_attention(const void *q, const void *keys, const void *values, void *out, const int32_t *starts,
                                 const int32_t *contexts, const int32_t *tables, int64_t table_width, int num_chunks,
                                 int heads, int head_dim, int block_size, float scale, int reach, int is_bf16);
void chairlift_delta_net(const void *net, const void *inputs, const void *rates, void *out, const int32_t *starts,
                         const int32_t *contexts, const int64_t *tables, const void *writes, int num_writes,
                         int num_chunks, float eps, int is_bf16);

#endif
