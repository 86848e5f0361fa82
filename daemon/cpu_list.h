// Lists of processors as text: "0,2-5". May be used by: daemon, tests. Threads: any; pure.
#ifndef CAIRN_CPU_LIST_H
#define CAIRN_CPU_LIST_H

#include <stdint.h>

enum {
        CAIRN_CPUS_MAX = 1024 // as many as the C library's sets hold
};

struct cairn_cpu_list {
        uint32_t count; // 0: none named
        uint16_t cpus[CAIRN_CPUS_MAX];
};

// Numbers and ranges with commas, each processor once; "": none. CAIRN_EINVAL.
int cairn_cpu_list_parse(const char *text, struct cairn_cpu_list *ret_list);

#endif
