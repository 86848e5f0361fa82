// Attention of proxies over stored keys (nacl.h): two passes over the keys, a tile of rows at a
// time, so that nothing of the size of tokens times queries is ever held.
#include "policy/retention/nacl.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "policy/landmark/kernels.h"
#include "proto/limits.h"
#include "proto/status.h"

enum {
        ALIGN = 64,
        TILE = CAIRN_NACL_TILE_TOKENS, // a multiple of 32, as kernels take it
        QUADS = 4                      // vectors of 4 tokens that stay in registers
};

typedef float quad __attribute__((vector_size(16)));

struct scratch {
        double sums[TILE];
        // Of two queries; -inf where a token does not count, or beyond the tile's end.
        float products[2][TILE];
        float weights[TILE];
        float rows[]; // [TILE][k_dim], then the same as columns [k_dim][TILE]
};

static int check_request(const struct cairn_nacl_request *request);
static int read_tile(const struct cairn_nacl_request *request, uint32_t first, uint32_t count,
                     struct scratch *scratch);
static void multiply(const struct cairn_nacl_request *request, uint32_t query, uint32_t first,
                     uint32_t count, struct scratch *scratch);

void cairn_nacl_defaults(struct cairn_nacl_options *ret_options)
{
        *ret_options = (struct cairn_nacl_options){.proxy_ratio = 0.01,
                                                   .proxy_keep = 0.12,
                                                   .random_keep = 0.07,
                                                   .protect = 0.01,
                                                   .sinks = CAIRN_NACL_SINKS};
}

static bool is_share(double value)
{
        return value >= 0 && value <= 1;
}

int cairn_nacl_check(const struct cairn_nacl_options *options)
{
        if (!is_share(options->proxy_ratio) || !is_share(options->proxy_keep) ||
            !is_share(options->random_keep) || !is_share(options->protect))
                return CAIRN_EINVAL;
        if (options->proxy_keep + options->random_keep + options->protect > 1 + 1e-9)
                return CAIRN_EINVAL;
        return CAIRN_OK;
}

void cairn_nacl_counts(const struct cairn_nacl_options *options, uint32_t n_tokens,
                       struct cairn_nacl_counts *ret_counts)
{
        // A hair more than the product, so that 0.07 * 100 is 7.
        const double n = (double)n_tokens * (1 + 1e-12);
        uint32_t protect = (uint32_t)(options->protect * n);
        uint32_t sinks = options->sinks < protect ? options->sinks : protect;
        uint32_t proxies = (uint32_t)(options->proxy_ratio * n);

        if (proxies > CAIRN_NACL_PROXIES_MAX)
                proxies = CAIRN_NACL_PROXIES_MAX;
        *ret_counts = (struct cairn_nacl_counts){.proxies = proxies ? proxies : 1,
                                                 .sinks = sinks,
                                                 .recent = protect - sinks,
                                                 .top = (uint32_t)(options->proxy_keep * n),
                                                 .random = (uint32_t)(options->random_keep * n)};
}

static uint32_t queries_of(const struct cairn_nacl_request *request)
{
        return request->n_proxies * request->group;
}

uint32_t cairn_nacl_spans(const struct cairn_nacl_request *request)
{
        return (request->keys.n_tokens + CAIRN_NACL_SPAN_TOKENS - 1) / CAIRN_NACL_SPAN_TOKENS;
}

size_t cairn_nacl_partials_bytes(const struct cairn_nacl_request *request)
{
        return (size_t)cairn_nacl_spans(request) * queries_of(request) *
               sizeof(struct cairn_nacl_partial);
}

size_t cairn_nacl_scratch_bytes(const struct cairn_nacl_request *request)
{
        size_t bytes =
            sizeof(struct scratch) + (size_t)TILE * request->keys.k_dim * 2 * sizeof(float);

        return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t cairn_nacl_scores_bytes(const struct cairn_nacl_request *request)
{
        return cairn_nacl_scratch_bytes(request) + cairn_nacl_partials_bytes(request) +
               queries_of(request) * sizeof(double);
}

int cairn_nacl_scores(const struct cairn_nacl_request *request, void *memory, float *ret_scores)
{
        struct cairn_nacl_partial *partials;
        double *lse;
        int status = check_request(request);

        if (status < 0)
                return status;
        partials = (void *)((char *)memory + cairn_nacl_scratch_bytes(request));
        lse = (void *)((char *)partials + cairn_nacl_partials_bytes(request));
        for (uint32_t span = 0; span < cairn_nacl_spans(request); span++) {
                status = cairn_nacl_weigh(request, span, memory, partials);
                if (status < 0)
                        return status;
        }
        cairn_nacl_merge(request, partials, lse);
        for (uint32_t span = 0; span < cairn_nacl_spans(request); span++) {
                status = cairn_nacl_score(request, span, lse, memory, ret_scores);
                if (status < 0)
                        return status;
        }
        return CAIRN_OK;
}

static void span_bounds(const struct cairn_nacl_request *request, uint32_t span,
                        uint32_t *ret_first, uint32_t *ret_end)
{
        uint32_t n = request->keys.n_tokens;

        assert(span < cairn_nacl_spans(request));
        *ret_first = span * CAIRN_NACL_SPAN_TOKENS;
        *ret_end =
            n - *ret_first < CAIRN_NACL_SPAN_TOKENS ? n : *ret_first + CAIRN_NACL_SPAN_TOKENS;
}

// Adds a tile's products to a running softmax sum.
static void add_to_partial(struct cairn_nacl_partial *partial, const float *products)
{
        const struct cairn_kernels *kernels = cairn_kernels_chosen();
        float largest = kernels->largest(products, TILE);

        if (largest == -INFINITY)
                return;
        if ((double)largest > partial->greatest) {
                partial->sum *= exp(partial->greatest - (double)largest); // exp(-inf) is 0
                partial->greatest = (double)largest;
        }
        partial->sum += (double)kernels->exp_sum(products, TILE, (float)partial->greatest);
}

// Adds a tile's softmax weights of one query. Weights are taken from the log-sum-exp as a float, so
// that differences stay exact, and what that rounds away is put right by a factor.
static void add_weights(double lse, const float *products, struct scratch *scratch)
{
        float base = (float)lse;
        double factor = exp((double)base - lse);

        cairn_kernels_chosen()->exp_weights(products, TILE, base, scratch->weights);
        for (uint32_t t = 0; t < TILE; t++)
                scratch->sums[t] += (double)scratch->weights[t] * factor;
}

int cairn_nacl_weigh(const struct cairn_nacl_request *request, uint32_t span, void *scratch,
                     struct cairn_nacl_partial *partials)
{
        const uint32_t n_queries = queries_of(request);
        struct cairn_nacl_partial *mine = partials + (size_t)span * n_queries;
        struct scratch *work = scratch;
        uint32_t first;
        uint32_t end;

        span_bounds(request, span, &first, &end);
        for (uint32_t q = 0; q < n_queries; q++)
                mine[q] = (struct cairn_nacl_partial){.greatest = -INFINITY};
        for (; first < end; first += TILE) {
                uint32_t count = end - first < TILE ? end - first : TILE;
                int status = read_tile(request, first, count, work);

                if (status < 0)
                        return status;
                for (uint32_t q = 0; q < n_queries; q++) {
                        if (q % 2 == 0)
                                multiply(request, q, first, count, work);
                        add_to_partial(&mine[q], work->products[q % 2]);
                }
        }
        return CAIRN_OK;
}

void cairn_nacl_merge(const struct cairn_nacl_request *request,
                      const struct cairn_nacl_partial *partials, double *ret_lse)
{
        const uint32_t n_queries = queries_of(request);
        const uint32_t n_spans = cairn_nacl_spans(request);

        for (uint32_t q = 0; q < n_queries; q++) {
                double greatest = -INFINITY;
                double sum = 0;

                for (uint32_t s = 0; s < n_spans; s++)
                        greatest = fmax(greatest, partials[(size_t)s * n_queries + q].greatest);
                for (uint32_t s = 0; s < n_spans && greatest > -INFINITY; s++) {
                        const struct cairn_nacl_partial *part =
                            &partials[(size_t)s * n_queries + q];

                        sum += part->sum * exp(part->greatest - greatest);
                }
                ret_lse[q] = greatest > -INFINITY ? greatest + log(sum) : -INFINITY;
        }
}

int cairn_nacl_score(const struct cairn_nacl_request *request, uint32_t span, const double *lse,
                     void *scratch, float *ret_scores)
{
        const uint32_t n_queries = queries_of(request);
        struct scratch *work = scratch;
        uint32_t first;
        uint32_t end;

        span_bounds(request, span, &first, &end);
        for (; first < end; first += TILE) {
                uint32_t count = end - first < TILE ? end - first : TILE;
                int status = read_tile(request, first, count, work);

                if (status < 0)
                        return status;
                memset(work->sums, 0, sizeof(work->sums));
                for (uint32_t q = 0; q < n_queries; q++) {
                        if (q % 2 == 0)
                                multiply(request, q, first, count, work);
                        if (lse[q] > -INFINITY)
                                add_weights(lse[q], work->products[q % 2], work);
                }
                for (uint32_t t = 0; t < count; t++)
                        ret_scores[first + t] = (float)work->sums[t];
        }
        return CAIRN_OK;
}

static int check_request(const struct cairn_nacl_request *request)
{
        const struct cairn_nacl_keys *keys = &request->keys;

        if (keys->k_dim < 1 || keys->k_dim > CAIRN_DIM_MAX || request->group < 1 ||
            request->group > CAIRN_GROUP_MAX || request->n_proxies < 1 ||
            request->n_proxies > CAIRN_NACL_PROXIES_MAX ||
            keys->n_tokens > CAIRN_CONTEXT_TOKENS_MAX)
                return CAIRN_EINVAL;
        if (!isfinite(request->scale))
                return CAIRN_EINVAL;
        return CAIRN_OK;
}

static int read_tile(const struct cairn_nacl_request *request, uint32_t first, uint32_t count,
                     struct scratch *scratch)
{
        const uint32_t dim = request->keys.k_dim;
        float *columns = scratch->rows + (size_t)TILE * dim;
        int status;

        assert(count > 0 && count <= TILE);
        status = request->keys.read(request->keys.arg, first, count, scratch->rows);
        if (status < 0)
                return status;
        for (uint32_t d = 0; d < dim; d++) {
                for (uint32_t t = 0; t < TILE; t++)
                        columns[d * TILE + t] = t < count ? scratch->rows[t * dim + d] : 0;
        }
        return CAIRN_OK;
}

// Dot products of two queries with a tile: tokens in lanes, sums over dims in order.
static void dots(const float *columns, uint32_t dim, const float *a, const float *b,
                 float products[2][TILE])
{
        for (uint32_t first = 0; first < TILE; first += 4 * QUADS) {
                quad x[QUADS] = {{0}};
                quad y[QUADS] = {{0}};

                for (uint32_t d = 0; d < dim; d++) {
                        quad keys[QUADS];

                        memcpy(keys, columns + d * TILE + first, sizeof(keys));
                        CAIRN_UNROLL
                        for (int i = 0; i < QUADS; i++) {
                                x[i] += keys[i] * a[d];
                                y[i] += keys[i] * b[d];
                        }
                }
                memcpy(products[0] + first, x, sizeof(x));
                memcpy(products[1] + first, y, sizeof(y));
        }
}

static bool is_present(const struct cairn_nacl_request *request, uint32_t at)
{
        return !request->present || request->present[at / 64] >> at % 64 & 1;
}

// Scales a query's products and puts -inf where they do not count.
static void settle(const struct cairn_nacl_request *request, uint32_t query, uint32_t first,
                   uint32_t count, float *products)
{
        if (request->causal) {
                uint32_t limit = request->causal[query / request->group];

                limit = limit > first ? limit - first : 0;
                count = limit < count ? limit : count;
        }
        for (uint32_t t = 0; t < TILE; t++) {
                float product = products[t] * request->scale;

                products[t] = t < count && isfinite(product) ? product : -INFINITY;
        }
        for (uint32_t t = 0; t < count && request->present; t++) {
                if (!is_present(request, first + t))
                        products[t] = -INFINITY;
        }
}

// Products of queries `query` and the one after it (if there is one) with a tile's tokens.
static void multiply(const struct cairn_nacl_request *request, uint32_t query, uint32_t first,
                     uint32_t count, struct scratch *scratch)
{
        const uint32_t dim = request->keys.k_dim;
        const float *a = request->queries + (size_t)query * dim;
        const float *b = query + 1 < queries_of(request) ? a + dim : a;

        dots(scratch->rows + (size_t)TILE * dim, dim, a, b, scratch->products);
        settle(request, query, first, count, scratch->products[0]);
        if (b != a)
                settle(request, query + 1, first, count, scratch->products[1]);
}
