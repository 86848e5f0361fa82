// AMX tiles in plain C, as the manual has them (Intel SDM, vol. 1, chapter 18, and vol. 2's pages
// of the instructions): settings are checked as the processor would, and only bytes inside a tile's
// rows are touched. Of one thread.
#ifndef CAIRN_EMULATED_AMX_H
#define CAIRN_EMULATED_AMX_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static struct {
        bool configured;
        uint32_t loads; // of settings
        uint32_t rows[8];
        uint32_t row_bytes[8];
        uint8_t bytes[8][16][64];
} amx;

static inline void amx_loadconfig(const void *at)
{
        const uint8_t *config = at;
        assert(config[0] == 1 && config[1] == 0);
        for (int i = 2; i < 16; i++)
                assert(config[i] == 0);
        memset(&amx.bytes, 0, sizeof amx.bytes);
        for (int i = 0; i < 16; i++) {
                uint32_t row_bytes = config[16 + 2 * i] | (uint32_t)config[17 + 2 * i] << 8;
                uint32_t rows = config[48 + i];
                assert(rows <= 16 && row_bytes <= 64 && (rows == 0) == (row_bytes == 0));
                assert(i < 8 || rows == 0);
                if (i >= 8)
                        continue;
                amx.rows[i] = rows;
                amx.row_bytes[i] = row_bytes;
        }
        amx.configured = true;
        amx.loads++;
}

static inline void amx_check(int tile)
{
        assert(amx.configured && tile >= 0 && tile < 8 && amx.rows[tile] > 0);
}

static inline void amx_zero(int tile)
{
        amx_check(tile);
        memset(amx.bytes[tile], 0, sizeof amx.bytes[tile]);
}

static inline void amx_loadd(int tile, const void *base, size_t stride)
{
        amx_zero(tile);
        for (uint32_t r = 0; r < amx.rows[tile]; r++)
                memcpy(amx.bytes[tile][r], (const uint8_t *)base + r * stride, amx.row_bytes[tile]);
}

static inline void amx_stored(int tile, void *base, size_t stride)
{
        amx_check(tile);
        for (uint32_t r = 0; r < amx.rows[tile]; r++)
                memcpy((uint8_t *)base + r * stride, amx.bytes[tile][r], amx.row_bytes[tile]);
}

// sums[m][n] += a[m][4 k + i] * b[k][4 n + i], of signed bytes by signed or unsigned ones.
static inline void amx_multiply(int sums, int a, int b, bool b_signed)
{
        amx_check(sums);
        amx_check(a);
        amx_check(b);
        assert(sums != a && sums != b && a != b);
        assert(amx.rows[sums] == amx.rows[a] && amx.row_bytes[sums] == amx.row_bytes[b]);
        assert(amx.row_bytes[a] == 4 * amx.rows[b] && amx.row_bytes[b] % 4 == 0);
        for (uint32_t m = 0; m < amx.rows[a]; m++) {
                for (uint32_t n = 0; n < amx.row_bytes[b] / 4; n++) {
                        uint32_t sum;
                        memcpy(&sum, &amx.bytes[sums][m][4 * n], 4);
                        for (uint32_t k = 0; k < amx.row_bytes[a]; k++) {
                                uint8_t right = amx.bytes[b][k / 4][4 * n + k % 4];
                                int32_t left = (int8_t)amx.bytes[a][m][k];
                                sum += (uint32_t)(left * (b_signed ? (int8_t)right : right));
                        }
                        memcpy(&amx.bytes[sums][m][4 * n], &sum, 4);
                }
        }
}

static inline void amx_release(void)
{
        memset(amx.bytes, 0, sizeof amx.bytes);
        amx.configured = false;
}

#define _tile_loadconfig         amx_loadconfig
#define _tile_zero               amx_zero
#define _tile_loadd              amx_loadd
#define _tile_stored             amx_stored
#define _tile_dpbssd(sums, a, b) amx_multiply(sums, a, b, true)
#define _tile_dpbsud(sums, a, b) amx_multiply(sums, a, b, false)
#define _tile_release            amx_release

#endif
