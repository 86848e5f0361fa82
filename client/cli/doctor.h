// What `cairnctl doctor` looks at. May be used by: client/cli.
#ifndef CAIRN_CLI_DOCTOR_H
#define CAIRN_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

enum cairn_cli_verdict {
        CAIRN_CLI_GOOD,
        CAIRN_CLI_SLOWER, // works, and could work better
        CAIRN_CLI_BAD,    // does not work, or loses what should be kept
};

struct cairn_cli_finding {
        const char *what;
        enum cairn_cli_verdict verdict;
        char found[160];
        char advice[160]; // empty: nothing to do
};

// Of kernel, limits, memory and processor. Each fills one finding.
void cairn_cli_check_kernel(struct cairn_cli_finding *ret_finding);
void cairn_cli_check_uring(struct cairn_cli_finding *ret_finding);
void cairn_cli_check_memlock(struct cairn_cli_finding *ret_finding);
void cairn_cli_check_descriptors(struct cairn_cli_finding *ret_finding);
void cairn_cli_check_huge_pages(struct cairn_cli_finding *ret_finding);
void cairn_cli_check_processor(struct cairn_cli_finding *ret_finding);

// Of the directory for blocks: O_DIRECT, room, and how fast it reads and writes. ret_read_bytes_s:
// 0 where it could not be measured. Takes a second or two; says so on a terminal.
void cairn_cli_check_direct(const char *directory, struct cairn_cli_finding *ret_finding);
void cairn_cli_check_disk(const char *directory, bool progress,
                          struct cairn_cli_finding *ret_finding, double *ret_read_bytes_s);

#endif
