// select against another program's search over the same keys. Used by tests/bench/ alone.
#ifndef CAIRN_BENCH_VERSUS_H
#define CAIRN_BENCH_VERSUS_H

#include "tests/bench/bench.h"

// `other`: what versus.py knows ("faiss", "numpy"). Flags of select.
int cairn_bench_versus(int argc, char **argv, const char *other,
                       struct cairn_bench_report *ret_report);

#endif
