// Admission: which blocks are worth a write to NVMe. The interface; the filters behind it are
// policy/admission/ and reach storage as a table of functions, as evictions do.
//
// Pure: no clock, no allocation, no globals. One thread at a time for a state. May be used by: all
// folders. May use: nothing.
#ifndef CAIRN_ADMISSION_H
#define CAIRN_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// `state` is the filter's own, of state_bytes, the caller's, aligned to 16, kept until the last
// call. `blocks`: about how many the tier holds. `id`: evenly spread, e.g. of the block's key.
struct cairn_admission_ops {
        const char *name;
        size_t (*state_bytes)(uint64_t blocks);
        void (*init)(void *state, uint64_t blocks);
        void (*use)(void *state, uint64_t id); // a put or a use of a block
        // Whether it is to be written now. `uses`: of this very copy, since it was put.
        bool (*admit)(void *state, uint64_t id, uint32_t uses);
};

#endif
