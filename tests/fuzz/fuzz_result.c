// Fuzzes the layout of results, whose shape a worker's query decides: parts lie in order, apart,
// and inside the total.
#include <string.h>

#include "proto/result.h"
#include "proto/status.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        struct cairn_result_shape shape = {0};
        struct cairn_result_layout layout;
        uint32_t numbers[8];
        uint64_t last = 0;

        if (size < sizeof(numbers) + 1)
                return 0;
        memcpy(numbers, bytes, sizeof(numbers));
        shape.pairs = numbers[0];
        shape.steps = numbers[1];
        shape.kv_heads = numbers[2];
        shape.query_heads = numbers[3];
        shape.k_max = numbers[4];
        shape.k_dim = numbers[5];
        shape.v_dim = numbers[6];
        shape.row_dtype = numbers[7];
        shape.attend = bytes[sizeof(numbers)] & 1;
        shape.rest = bytes[sizeof(numbers)] & 2;
        shape.rows = bytes[sizeof(numbers)] & 4;
        if (cairn_result_layout(&shape, &layout) != CAIRN_OK)
                return 0;
        const uint64_t parts[] = {layout.counts,   layout.positions, layout.scores,
                                  layout.lse,      layout.part_lse,  layout.part_out,
                                  layout.rest_lse, layout.rest_out,  layout.k_rows,
                                  layout.v_rows};

        FUZZ_CHECK(layout.total_bytes <= 1ull << 62);
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
                if (parts[i] == UINT64_MAX)
                        continue;
                FUZZ_CHECK(parts[i] % 64 == 0);
                FUZZ_CHECK(parts[i] >= last && parts[i] <= layout.total_bytes);
                last = parts[i];
        }
        return 0;
}
