// AMX: int8 rows against many queries at once, by tiles of 16 rows and 16 queries. Products with
// 16-bit query elements are two of 8 bits: 256 * (row . high byte, signed) + row . low byte,
// unsigned; all sums are exact. Everything else is the AVX-512 table's (isa.c). Codes of 1, 2 and 4
// bits have no use for tiles: their sums are of table entries, one-hot products of 16 bytes a
// look-up, of which building the operand alone costs more than AVX-512's look-ups do.
//
// Source of the tile layout: Intel 64 and IA-32 Architectures Software Developer's Manual, vol. 1,
// chapter 18.
#ifndef CAIRN_EMULATED
#include <immintrin.h>
#endif
#include <string.h>

#include "policy/landmark/kernels.h"

enum {
        TILE_ROWS = 16,
        TILE_BYTES = 64, // of a row
        CHUNKS_MAX = CAIRN_DIM_PADDED_MAX / TILE_BYTES,
};

// Tiles, as the assembler wants them: by number.
#define SUM_HIGH  0
#define SUM_LOW   1
#define ROWS      2
#define HIGH      3
#define LOW       4
#define LAST_ROWS 5 // of the last chunk, if it is shorter
#define LAST_HIGH 6
#define LAST_LOW  7

struct tile_config {
        uint8_t palette;
        uint8_t start_row;
        uint8_t reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "what LDTILECFG reads");

// Sixteen queries' bytes as B tiles want them: [chunk][four elements][query][element].
struct packed {
        int8_t high[CHUNKS_MAX][TILE_ROWS][TILE_BYTES];
        uint8_t low[CHUNKS_MAX][TILE_ROWS][TILE_BYTES];
};

static void pack(const int16_t *queries, uint32_t bytes, uint32_t n_queries, struct packed *packed)
{
        memset(packed, 0, sizeof *packed);
        for (uint32_t q = 0; q < n_queries; q++) {
                for (uint32_t j = 0; j < bytes; j++) {
                        int32_t element = queries[(size_t)q * bytes + j];
                        uint32_t chunk = j / TILE_BYTES, row = j % TILE_BYTES / 4,
                                 at = q * 4 + j % 4;
                        packed->high[chunk][row][at] = (int8_t)(element >> 8);
                        packed->low[chunk][row][at] = (uint8_t)(element & 255);
                }
        }
}

static void set_tile(struct tile_config *config, int tile, uint32_t rows, uint32_t row_bytes)
{
        config->rows[tile] = (uint8_t)rows;
        config->row_bytes[tile] = (uint16_t)row_bytes;
}

// Tiles for n_rows rows and n_queries queries. The setting is the calling thread's.
static void configure(uint32_t n_rows, uint32_t n_queries, uint32_t last_bytes)
{
        struct tile_config config = {.palette = 1};
        set_tile(&config, SUM_HIGH, n_rows, n_queries * 4);
        set_tile(&config, SUM_LOW, n_rows, n_queries * 4);
        set_tile(&config, ROWS, n_rows, TILE_BYTES);
        set_tile(&config, HIGH, TILE_BYTES / 4, n_queries * 4);
        set_tile(&config, LOW, TILE_BYTES / 4, n_queries * 4);
        if (last_bytes > 0) {
                set_tile(&config, LAST_ROWS, n_rows, last_bytes);
                set_tile(&config, LAST_HIGH, last_bytes / 4, n_queries * 4);
                set_tile(&config, LAST_LOW, last_bytes / 4, n_queries * 4);
        }
        _tile_loadconfig(&config);
}

// Products of up to 16 rows with the packed queries.
static void multiply(const int8_t *rows, uint32_t row_stride, uint32_t bytes,
                     const struct packed *packed, int32_t high[TILE_ROWS][TILE_ROWS],
                     int32_t low[TILE_ROWS][TILE_ROWS])
{
        uint32_t chunks = bytes / TILE_BYTES;
        _tile_zero(SUM_HIGH);
        _tile_zero(SUM_LOW);
        for (uint32_t c = 0; c < chunks; c++) {
                _tile_loadd(ROWS, rows + (size_t)c * TILE_BYTES, row_stride);
                _tile_loadd(HIGH, packed->high[c], TILE_BYTES);
                _tile_loadd(LOW, packed->low[c], TILE_BYTES);
                _tile_dpbssd(SUM_HIGH, ROWS, HIGH);
                _tile_dpbsud(SUM_LOW, ROWS, LOW);
        }
        if (bytes % TILE_BYTES > 0) {
                _tile_loadd(LAST_ROWS, rows + (size_t)chunks * TILE_BYTES, row_stride);
                _tile_loadd(LAST_HIGH, packed->high[chunks], TILE_BYTES);
                _tile_loadd(LAST_LOW, packed->low[chunks], TILE_BYTES);
                _tile_dpbssd(SUM_HIGH, LAST_ROWS, LAST_HIGH);
                _tile_dpbsud(SUM_LOW, LAST_ROWS, LAST_LOW);
        }
        _tile_stored(SUM_HIGH, high, sizeof high[0]);
        _tile_stored(SUM_LOW, low, sizeof low[0]);
}

void cairn_amx_rows_dots(const int8_t *rows, uint32_t n_rows, uint32_t row_stride, uint32_t bytes,
                         const int16_t *queries, uint32_t n_queries, int32_t *ret_dots)
{
        struct packed packed;
        int32_t high[TILE_ROWS][TILE_ROWS], low[TILE_ROWS][TILE_ROWS];
        for (uint32_t q0 = 0; q0 < n_queries; q0 += TILE_ROWS) {
                uint32_t queries_here = n_queries - q0 < TILE_ROWS ? n_queries - q0 : TILE_ROWS;
                uint32_t configured = 0;
                pack(queries + (size_t)q0 * bytes, bytes, queries_here, &packed);
                for (uint32_t r0 = 0; r0 < n_rows; r0 += TILE_ROWS) {
                        uint32_t rows_here = n_rows - r0 < TILE_ROWS ? n_rows - r0 : TILE_ROWS;
                        if (rows_here != configured)
                                configure(rows_here, queries_here, bytes % TILE_BYTES);
                        configured = rows_here;
                        multiply(rows + (size_t)r0 * row_stride, row_stride, bytes, &packed, high,
                                 low);
                        for (uint32_t r = 0; r < rows_here; r++)
                                for (uint32_t q = 0; q < queries_here; q++)
                                        ret_dots[(size_t)(r0 + r) * n_queries + q0 + q] =
                                            256 * high[r][q] + low[r][q];
                }
        }
        _tile_release(); // else every switch of threads would save the tiles
}
