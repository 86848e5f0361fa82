// What the fuzz targets share. Each is one file fuzz_NAME.c with LLVMFuzzerTestOneInput; seeds come
// from seeds.c, what was once found lies in corpus/NAME/.
#ifndef CAIRN_FUZZ_H
#define CAIRN_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

// A property that every input must have.
#define FUZZ_CHECK(condition)             \
        do {                              \
                if (!(condition))         \
                        __builtin_trap(); \
        } while (0)

#endif
