// Lookup, Release, and what the handlers of blocks share.
#include <assert.h>
#include <stdlib.h>

#include "daemon/clock.h"
#include "daemon/connection.h"
#include "daemon/serve.h"
#include "daemon/server.h"
#include "proto/probe.h"
#include "proto/status.h"

// ---- shared ----

bool cairn_serve_keys(struct cairn_request *request, uint32_t id, const ProtobufCBinaryData *field,
                      const struct cairn_space_entry **ret_entry, const struct cairn_key **ret_keys,
                      size_t *ret_count)
{
        *ret_entry = cairn_session_space(request->session, id);
        if (!*ret_entry) {
                cairn_request_fail(
                    request, CAIRN_ENOENT,
                    "space %u was not opened on this connection; send OpenSpace first", id);
                return false;
        }
        if (cairn_codec_keys(field, ret_keys, ret_count) != CAIRN_OK) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "keys: %zu bytes; give 32 a key and at most %d keys", field->len,
                                   CAIRN_KEYS_MAX);
                return false;
        }
        return true;
}

// Side by side from the region's start, or at offsets of the whole arena.
static int check_items(const struct cairn_bulk *bulk, const Cairn__Region *region,
                       const uint64_t *offsets, size_t offsets_count, size_t count,
                       uint64_t item_bytes, uint32_t *ret_index)
{
        *ret_index = 0;
        if (cairn_range_check(bulk->size_bytes, region->offset, region->bytes) != CAIRN_OK)
                return CAIRN_ERANGE;
        if (offsets_count == 0)
                return count == 0 || item_bytes <= region->bytes / count ? CAIRN_OK : CAIRN_ERANGE;
        for (size_t i = 0; i < count; i++) {
                *ret_index = (uint32_t)i;
                if (cairn_range_check(bulk->size_bytes, offsets[i], item_bytes) != CAIRN_OK)
                        return CAIRN_ERANGE;
        }
        return CAIRN_OK;
}

bool cairn_serve_bulk(struct cairn_request *request, const Cairn__Region *region,
                      const uint64_t *offsets, size_t offsets_count, size_t count,
                      uint64_t item_bytes, const uint8_t *memory, uint64_t memory_bytes,
                      struct cairn_bulk *ret_bulk)
{
        static const Cairn__Region none = CAIRN__REGION__INIT;
        Cairn__Region inline_region = CAIRN__REGION__INIT;
        struct cairn_bulk bulk = {.base = (uint8_t *)memory, .size_bytes = memory_bytes};
        uint32_t index;

        if (!region)
                region = &none;
        if (region->arena != 0) {
                bulk.arena = cairn_session_arena(request->session, region->arena);
                if (!bulk.arena) {
                        cairn_request_fail(request, CAIRN_ESTALE,
                                           "arena %u is none of this connection; register it first",
                                           region->arena);
                        return false;
                }
                bulk.base = bulk.arena->base;
                bulk.size_bytes = bulk.arena->size_bytes;
        } else if (region->bytes == 0) {
                inline_region = *region; // "the payload" may leave out its size
                inline_region.bytes =
                    memory_bytes >= region->offset ? memory_bytes - region->offset : 0;
                region = &inline_region;
        }
        if (offsets_count != 0 && offsets_count != count) {
                cairn_request_fail(request, CAIRN_EINVAL,
                                   "offsets: %zu for %zu keys; give one a key, or none",
                                   offsets_count, count);
                return false;
        }
        if (check_items(&bulk, region, offsets, offsets_count, count, item_bytes, &index) !=
            CAIRN_OK) {
                cairn_request_fail_at(
                    request, CAIRN_ERANGE, index,
                    "%zu items of %llu bytes do not fit: region (%llu, %llu) of %llu bytes of %s",
                    count, (unsigned long long)item_bytes, (unsigned long long)region->offset,
                    (unsigned long long)region->bytes, (unsigned long long)bulk.size_bytes,
                    bulk.arena ? "the arena; name a range inside it" : "payload; use an arena");
                return false;
        }
        if (bulk.arena)
                cairn_arena_ref(bulk.arena);
        if (offsets_count == 0)
                bulk.base += region->offset;
        *ret_bulk = bulk;
        return true;
}

void cairn_bulk_finish(struct cairn_bulk *bulk)
{
        cairn_arena_unref(bulk->arena);
        bulk->arena = NULL;
}

// ---- Lookup and Release ----

struct lookup_op {
        struct cairn_block **blocks;
        uint8_t *tiers;
};

static void lookup_end(void *arg)
{
        struct lookup_op *op = arg;

        free(op->blocks);
        free(op->tiers);
}

// Makes the found blocks a lease, or lets them go.
static int lease_found(struct cairn_request *request, struct lookup_op *op, size_t found,
                       uint32_t lease_ms, uint64_t *ret_lease)
{
        struct cairn_server *server = request->server;
        uint64_t id = (server->incarnation << 32) | (uint32_t)++server->lease_last;
        int status = CAIRN_OK;

        *ret_lease = 0;
        if (lease_ms > server->config->lease_max_ms)
                lease_ms = (uint32_t)server->config->lease_max_ms;
        if (lease_ms > 0 && found > 0) {
                status = cairn_lease_add(&request->session->leases, id, cairn_clock_ms() + lease_ms,
                                         op->blocks, found);
                if (status == CAIRN_OK) {
                        op->blocks = NULL; // the lease's
                        server->counters.leases++;
                        server->counters.leases_total++;
                        *ret_lease = id;
                        return CAIRN_OK;
                }
        }
        cairn_store_unhold_many(server->store, op->blocks, found);
        return status;
}

void cairn_serve_lookup(struct cairn_request *request)
{
        const Cairn__LookupRequest *message = request->message;
        Cairn__LookupReply reply = CAIRN__LOOKUP_REPLY__INIT;
        const struct cairn_space_entry *entry;
        const struct cairn_key *keys;
        struct lookup_op *op;
        size_t found;
        size_t count;
        int status;

        if (!cairn_serve_keys(request, message->space, &message->keys, &entry, &keys, &count))
                return;
        op = cairn_request_op(request, sizeof(*op), lookup_end);
        if (op && count > 0) {
                op->blocks = malloc(count * sizeof(op->blocks[0]));
                op->tiers = malloc(count);
        }
        if (!op || (count > 0 && (!op->blocks || !op->tiers))) {
                cairn_request_fail(request, CAIRN_ENOMEM, NULL);
                return;
        }
        found = cairn_store_hold_prefix(request->server->store, entry->id, keys, count, op->blocks,
                                        op->tiers);
        status = lease_found(request, op, found, message->lease_ms, &reply.lease);
        if (status != CAIRN_OK) {
                cairn_request_fail(request, status,
                                   "a connection may hold %d leases; release some first",
                                   CAIRN_LEASES_MAX);
                return;
        }
        for (size_t i = 0; i < found; i++)
                request->server->counters.lookup_blocks[op->tiers[i]]++;
        request->server->counters.lookup_blocks[CAIRN_TIER_NONE] += count - found;
        request->server->counters.lookup_tokens += found * entry->space.block_tokens;
        CAIRN_PROBE3(lookup, entry->id, count, found);
        request->server->counters.saved_bytes += found * entry->block_bytes;
        if (found < count)
                cairn_stats_lookup_missed(request->server, entry->id, keys + found, count - found);
        reply.found = (uint32_t)found;
        reply.tiers.data = op->tiers;
        reply.tiers.len = found;
        cairn_request_reply(request, &reply);
}

void cairn_serve_release(struct cairn_request *request)
{
        const Cairn__ReleaseRequest *message = request->message;
        Cairn__ReleaseReply reply = CAIRN__RELEASE_REPLY__INIT;

        if (cairn_lease_release(&request->session->leases, message->lease) != CAIRN_OK) {
                cairn_request_fail(request, CAIRN_ESTALE,
                                   "lease %llu is none of this connection, or has ended; look up "
                                   "again",
                                   (unsigned long long)message->lease);
                return;
        }
        request->server->counters.leases--;
        cairn_request_reply(request, &reply);
}
