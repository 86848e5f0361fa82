// Reads keys through the landmarks' gather (pieces.h).
#include "policy/retention/pieces.h"

#include <assert.h>

#include "proto/limits.h"
#include "proto/status.h"

// The last piece that begins at or before a position.
static uint32_t piece_at(const struct cairn_retention_pieces *pieces, uint32_t position)
{
        uint32_t low = 0;
        uint32_t high = pieces->n_pieces;

        while (high - low > 1) {
                uint32_t middle = low + (high - low) / 2;

                if (pieces->pieces[middle].position <= position)
                        low = middle;
                else
                        high = middle;
        }
        return low;
}

static int read_rows(void *arg, uint32_t first, uint32_t count, float *ret_rows)
{
        const struct cairn_retention_pieces *pieces = arg;
        uint32_t positions[CAIRN_NACL_TILE_TOKENS];
        uint32_t piece = piece_at(pieces, first);

        assert(count <= CAIRN_NACL_TILE_TOKENS);
        for (uint32_t i = 0; i < count; i++)
                positions[i] = first + i;
        return cairn_landmark_gather(pieces->layout, pieces->pieces + piece,
                                     pieces->n_pieces - piece, positions, count, CAIRN_DTYPE_F32,
                                     ret_rows, NULL);
}

int cairn_retention_pieces_keys(const struct cairn_retention_pieces *pieces,
                                struct cairn_nacl_keys *ret_keys)
{
        uint64_t next = 0;

        for (uint32_t p = 0; p < pieces->n_pieces; p++) {
                if (pieces->pieces[p].position != next || pieces->pieces[p].n_tokens == 0)
                        return CAIRN_EINVAL;
                next += pieces->pieces[p].n_tokens;
        }
        if (next == 0 || next > CAIRN_CONTEXT_TOKENS_MAX)
                return CAIRN_EINVAL;
        *ret_keys = (struct cairn_nacl_keys){.read = read_rows,
                                             .arg = (void *)(uintptr_t)pieces,
                                             .n_tokens = (uint32_t)next,
                                             .k_dim = pieces->layout->shape.k_dim};
        return CAIRN_OK;
}
