// A whole daemon inside the fuzzing process, on a thread of its own, and connections to it.
#ifndef CAIRN_FUZZ_LIVE_H
#define CAIRN_FUZZ_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuzz_link {
        int fd;
        uint32_t space;   // an attention space of this connection
        uint64_t context; // over one stored block
};

// Starts the daemon in a directory of its own, which goes at the end. Once a process.
void fuzz_live_start(void);
// Connects; `ready`: says Hello, opens a space, puts a block and opens a context, and reads the
// answers.
void fuzz_link_open(struct fuzz_link *link, bool ready);
// One frame; whatever the daemon answers meanwhile is read away.
void fuzz_link_send(struct fuzz_link *link, uint32_t kind, const void *message,
                    size_t message_bytes, const void *payload, size_t payload_bytes);
// Bytes as they are, but for frames of Drain in them, which would end the daemon.
void fuzz_link_send_raw(struct fuzz_link *link, const uint8_t *bytes, size_t size);
// Says that nothing more comes, and reads until the daemon has closed: it must.
void fuzz_link_end(struct fuzz_link *link);

#endif
