// Trace contexts.
#include "proto/trace.h"

#include <stdio.h>
#include <string.h>

#include "proto/status.h"

static bool is_zero(const uint8_t *bytes, size_t size)
{
        for (size_t i = 0; i < size; i++)
                if (bytes[i] != 0)
                        return false;
        return true;
}

bool cairn_trace_is_set(const struct cairn_trace *trace)
{
        return !is_zero(trace->id, sizeof(trace->id));
}

// Lower case alone, as the W3C has it; -1: no digit.
static int digit(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// False: not 2 * size hex digits.
static bool take_hex(const char *text, uint8_t *ret_bytes, size_t size)
{
        for (size_t i = 0; i < size; i++) {
                int high = digit(text[2 * i]);
                int low = high < 0 ? -1 : digit(text[2 * i + 1]);

                if (low < 0)
                        return false;
                ret_bytes[i] = (uint8_t)(high << 4 | low);
        }
        return true;
}

int cairn_trace_parse(const char *traceparent, struct cairn_trace *ret_trace)
{
        struct cairn_trace trace;
        uint8_t version;
        uint8_t flags;

        // Later versions may append fields; version ff is forbidden.
        if (strlen(traceparent) < 55 || !take_hex(traceparent, &version, 1) || version == 0xff ||
            traceparent[2] != '-' || !take_hex(traceparent + 3, trace.id, sizeof(trace.id)) ||
            traceparent[35] != '-' || !take_hex(traceparent + 36, trace.span, sizeof(trace.span)) ||
            traceparent[52] != '-' || !take_hex(traceparent + 53, &flags, 1))
                return CAIRN_EINVAL;
        if (traceparent[55] != '\0' && (version == 0 || traceparent[55] != '-'))
                return CAIRN_EINVAL;
        if (is_zero(trace.id, sizeof(trace.id)) || is_zero(trace.span, sizeof(trace.span)))
                return CAIRN_EINVAL;
        *ret_trace = trace;
        return CAIRN_OK;
}

void cairn_trace_text(const struct cairn_trace *trace, char ret_id[CAIRN_TRACE_ID_TEXT],
                      char ret_span[CAIRN_TRACE_SPAN_TEXT])
{
        for (size_t i = 0; i < sizeof(trace->id); i++)
                (void)snprintf(ret_id + 2 * i, 3, "%02x", trace->id[i]);
        for (size_t i = 0; i < sizeof(trace->span); i++)
                (void)snprintf(ret_span + 2 * i, 3, "%02x", trace->span[i]);
}

void cairn_trace_write(const struct cairn_trace *trace, uint8_t ret_bytes[CAIRN_TRACE_FIELD_BYTES])
{
        uint32_t tag = CAIRN_TRACE_FIELD << 3 | 2; // length-delimited

        ret_bytes[0] = (uint8_t)(tag & 127) | 128;
        ret_bytes[1] = (uint8_t)(tag >> 7);
        ret_bytes[2] = CAIRN_TRACE_BYTES;
        memcpy(ret_bytes + 3, trace->id, sizeof(trace->id));
        memcpy(ret_bytes + 3 + sizeof(trace->id), trace->span, sizeof(trace->span));
}
