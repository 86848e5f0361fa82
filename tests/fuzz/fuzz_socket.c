// Fuzzes the whole way of a connection: a daemon in this process, its socket, frames, decoding,
// handlers, store, answers. It must go on serving and close when nothing more comes.
//
// Byte 0: 0: raw bytes from the first on; else a connection that has said Hello, opened a space and
// a context, and then gets records: kind u8, message bytes u16, payload bytes u16, the message, the
// payload.
#include "proto/bytes.h"
#include "proto/frame.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/live.h"

enum {
        RECORD_BYTES = 5
};

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
        (void)argc, (void)argv;
        fuzz_live_start();
        return 0;
}

static void send_records(struct fuzz_link *link, const uint8_t *bytes, size_t size)
{
        while (size >= RECORD_BYTES) {
                uint32_t kind = bytes[0] % CAIRN_KIND_COUNT;
                size_t message_bytes = cairn_get_u16(bytes + 1);
                size_t payload_bytes = cairn_get_u16(bytes + 3);

                bytes += RECORD_BYTES;
                size -= RECORD_BYTES;
                message_bytes = message_bytes < size ? message_bytes : size;
                payload_bytes =
                    payload_bytes < size - message_bytes ? payload_bytes : size - message_bytes;
                if (kind != CAIRN_KIND_DRAIN)
                        fuzz_link_send(link, kind, bytes, message_bytes, bytes + message_bytes,
                                       payload_bytes);
                bytes += message_bytes + payload_bytes;
                size -= message_bytes + payload_bytes;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
        struct fuzz_link link;

        if (size < 2)
                return 0;
        fuzz_link_open(&link, bytes[0] != 0);
        if (bytes[0] == 0)
                fuzz_link_send_raw(&link, bytes + 1, size - 1);
        else
                send_records(&link, bytes + 1, size - 1);
        fuzz_link_end(&link);
        return 0;
}
