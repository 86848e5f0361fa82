// Trace contexts of requests: which trace of the caller a request belongs to (OpenTelemetry, W3C
// trace context), so that its lines in the daemon's log can be found. They ride in field
// CAIRN_TRACE_FIELD of a request's message, whichever it is: those who do not know it skip it.
// Pure; threads: any. May be used by: daemon, client, tests. May use: proto.
#ifndef CAIRN_TRACE_H
#define CAIRN_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        CAIRN_TRACE_FIELD = 2047, // `bytes`: the id, then the span
        CAIRN_TRACE_ID_BYTES = 16,
        CAIRN_TRACE_SPAN_BYTES = 8,
        CAIRN_TRACE_BYTES = 24,
        CAIRN_TRACE_FIELD_BYTES = 2 + 1 + CAIRN_TRACE_BYTES, // tag, length, bytes
        CAIRN_TRACE_ID_TEXT = 33,                            // hex digits and a zero
        CAIRN_TRACE_SPAN_TEXT = 17
};

struct cairn_trace {
        uint8_t id[CAIRN_TRACE_ID_BYTES]; // zero: none
        uint8_t span[CAIRN_TRACE_SPAN_BYTES];
};

bool cairn_trace_is_set(const struct cairn_trace *trace);
// A W3C traceparent, "00-<32 hex>-<16 hex>-<2 hex>". CAIRN_EINVAL: it is none, or its ids are zero.
int cairn_trace_parse(const char *traceparent, struct cairn_trace *ret_trace);
void cairn_trace_text(const struct cairn_trace *trace, char ret_id[CAIRN_TRACE_ID_TEXT],
                      char ret_span[CAIRN_TRACE_SPAN_TEXT]);
// The field, to stand behind a packed message.
void cairn_trace_write(const struct cairn_trace *trace, uint8_t ret_bytes[CAIRN_TRACE_FIELD_BYTES]);

#endif
