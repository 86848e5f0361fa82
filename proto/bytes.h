// Little-endian integers in byte buffers, whatever their alignment.
// May be used by: all folders. May use: nothing.
#ifndef CAIRN_BYTES_H
#define CAIRN_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void cairn_put_u16(uint8_t *to, uint16_t value)
{
        value = htole16(value);
        memcpy(to, &value, sizeof(value));
}

static inline void cairn_put_u32(uint8_t *to, uint32_t value)
{
        value = htole32(value);
        memcpy(to, &value, sizeof(value));
}

static inline void cairn_put_u64(uint8_t *to, uint64_t value)
{
        value = htole64(value);
        memcpy(to, &value, sizeof(value));
}

static inline uint16_t cairn_get_u16(const uint8_t *from)
{
        uint16_t value;
        memcpy(&value, from, sizeof(value));
        return le16toh(value);
}

static inline uint32_t cairn_get_u32(const uint8_t *from)
{
        uint32_t value;
        memcpy(&value, from, sizeof(value));
        return le32toh(value);
}

static inline uint64_t cairn_get_u64(const uint8_t *from)
{
        uint64_t value;
        memcpy(&value, from, sizeof(value));
        return le64toh(value);
}

#endif
