// Segments, classes and the budget of the RAM tier.
#include "storage/ram.h"

#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/device.h"

enum {
        PAGE = CAIRN_DEVICE_ALIGN_BYTES,
        NONE = -1
};
#define SEGMENT_BYTES_MIN (1ull << 20)
#define SEGMENT_BYTES_MAX (1ull << 30)
#define HUGE_BUDGET_BYTES (1ull << 30) // below it, a huge page's rounding would show in the budget

// Free slots of a segment lie on two stacks: kept (their memory is there) and bare.
struct segment {
        int fd; // -1: an empty place in the array
        uint64_t number;
        uint8_t *base;
        uint64_t map_bytes;
        uint64_t table_bytes;
        uint64_t slot_bytes;
        uint32_t class;
        uint32_t slots;
        uint32_t kept_count;
        uint32_t bare_count;
        uint32_t *kept;
        uint32_t *bare;
        int32_t next; // of the class
};

struct class
{
        uint64_t slot_bytes;
        uint32_t tenant;
        uint32_t kept_count;
        int32_t first; // segment
};

struct cairn_ram {
        bool sealed;
        uint64_t segment_number; // next
        uint64_t limit_bytes;
        uint64_t used_bytes;
        uint64_t backed_bytes;
        uint64_t segment_bytes;
        uint32_t segments_count; // places in use or once used
        uint32_t classes_count;
        struct segment *segments;
        struct class *classes;
};

int cairn_ram_create(uint64_t limit_bytes, bool sealed, struct cairn_ram **ret_ram)
{
        struct cairn_ram *ram = calloc(1, sizeof(*ram));
        if (!ram)
                return CAIRN_ENOMEM;
        ram->limit_bytes = limit_bytes;
        ram->sealed = sealed;
        ram->segment_bytes = limit_bytes / 64;
        // Sealed segments go back whole alone: small ones, so that few blocks stand in the way.
        if (!sealed && ram->segment_bytes < SEGMENT_BYTES_MIN)
                ram->segment_bytes = SEGMENT_BYTES_MIN;
        if (ram->segment_bytes > SEGMENT_BYTES_MAX)
                ram->segment_bytes = SEGMENT_BYTES_MAX;
        ram->segments = calloc(CAIRN_RAM_SEGMENTS_MAX, sizeof(*ram->segments));
        ram->classes = calloc(CAIRN_RAM_CLASSES_MAX, sizeof(*ram->classes));
        if (!ram->segments || !ram->classes) {
                cairn_ram_destroy(ram);
                return CAIRN_ENOMEM;
        }
        *ret_ram = ram;
        return CAIRN_OK;
}

static void segment_unmap(struct segment *segment)
{
        if (segment->base) {
                atomic_store_explicit((_Atomic uint64_t *)(void *)segment->base, 1,
                                      memory_order_release);
                munmap(segment->base, segment->map_bytes);
        }
        if (segment->fd >= 0)
                close(segment->fd);
        free(segment->kept);
        *segment = (struct segment){.fd = -1};
}

void cairn_ram_destroy(struct cairn_ram *ram)
{
        if (!ram)
                return;
        assert(ram->used_bytes == 0);
        for (uint32_t i = 0; i < ram->segments_count; i++) {
                if (ram->segments[i].base)
                        segment_unmap(&ram->segments[i]);
        }
        free(ram->segments);
        free(ram->classes);
        free(ram);
}

// A word that tells whether the segment has ended, then the slots' generations.
static uint64_t table_bytes_of(const struct cairn_ram *ram, uint64_t slot_bytes)
{
        uint64_t slots = ram->segment_bytes / slot_bytes;
        return ((1 + (slots ? slots : 1)) * sizeof(uint64_t) + PAGE - 1) / PAGE * PAGE;
}

// Maps a new segment: its table, then its slots, sparse.
static int segment_map(struct cairn_ram *ram, const struct class *class, struct segment *segment)
{
        uint64_t slots = ram->segment_bytes / class->slot_bytes;
        if (slots == 0)
                slots = 1;
        *segment = (struct segment){.fd = -1, .slots = (uint32_t)slots};
        segment->slot_bytes = class->slot_bytes;
        segment->table_bytes = table_bytes_of(ram, class->slot_bytes);
        segment->map_bytes = segment->table_bytes + slots * class->slot_bytes;
        segment->kept = malloc(2 * slots * sizeof(uint32_t));
        segment->fd = memfd_create("cairn-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        void *base = MAP_FAILED;
        if (segment->kept && segment->fd >= 0 &&
            ftruncate(segment->fd, (off_t)segment->map_bytes) == 0)
                base = mmap(NULL, segment->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                            segment->fd, 0);
        if (base == MAP_FAILED) {
                segment_unmap(segment);
                return CAIRN_ENOMEM;
        }
        (void)madvise(base, segment->map_bytes,
                      MADV_DONTDUMP); // refused: a dump shows tenants' data
        segment->base = base;
        segment->bare = segment->kept + slots;
        for (uint32_t i = 0; i < slots; i++)
                segment->bare[i] = (uint32_t)slots - 1 - i;
        segment->bare_count = (uint32_t)slots;
        (void)fchmod(segment->fd,
                     S_IRUSR); // others cannot open it anew: more than the seals ask for
        // Our own mapping is there already, and stays writable.
        int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
        if (ram->sealed && fcntl(segment->fd, F_ADD_SEALS, seals) != 0) {
                segment_unmap(segment);
                return CAIRN_ENOMEM;
        }
        // Refused advice costs speed alone.
        if (ram->limit_bytes >= HUGE_BUDGET_BYTES)
                (void)madvise(base, segment->map_bytes, MADV_HUGEPAGE);
        return CAIRN_OK;
}

static struct class *class_of(struct cairn_ram *ram, uint32_t tenant, uint64_t bytes)
{
        for (uint32_t i = 0; i < ram->classes_count; i++) {
                struct class *class = &ram->classes[i];
                if (class->tenant == tenant && class->slot_bytes == bytes)
                        return class;
        }
        for (uint32_t i = 0; i <= ram->classes_count && i < CAIRN_RAM_CLASSES_MAX; i++) {
                struct class *class = &ram->classes[i];
                if (i < ram->classes_count && class->first != NONE)
                        continue;
                *class = (struct class){.slot_bytes = bytes, .tenant = tenant, .first = NONE};
                if (i == ram->classes_count)
                        ram->classes_count++;
                return class;
        }
        return NULL;
}

static void segment_remove(struct cairn_ram *ram, uint32_t index)
{
        struct segment *segment = &ram->segments[index];
        int32_t *link = &ram->classes[segment->class].first;
        while (*link != (int32_t)index)
                link = &ram->segments[*link].next;
        *link = segment->next;
        ram->backed_bytes -= segment->table_bytes + segment->kept_count * segment->slot_bytes;
        ram->classes[segment->class].kept_count -= segment->kept_count;
        segment_unmap(segment);
}

// Gives kept slots of a segment back, where its seals allow; an empty segment goes whole.
static void segment_trim(struct cairn_ram *ram, uint32_t index, uint64_t want_bytes)
{
        struct segment *segment = &ram->segments[index];
        uint64_t freed_bytes = 0;
        if (segment->bare_count + segment->kept_count == segment->slots) {
                segment_remove(ram, index);
                return;
        }
        while (!ram->sealed && segment->kept_count > 0 && freed_bytes < want_bytes) {
                uint32_t slot = segment->kept[segment->kept_count - 1];
                off_t offset = (off_t)(segment->table_bytes + slot * segment->slot_bytes);
                if (fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                              (off_t)segment->slot_bytes) != 0)
                        break;
                segment->kept_count--;
                ram->classes[segment->class].kept_count--;
                segment->bare[segment->bare_count++] = slot;
                ram->backed_bytes -= segment->slot_bytes;
                freed_bytes += segment->slot_bytes;
        }
}

static void trim(struct cairn_ram *ram, uint64_t want_bytes)
{
        uint64_t goal = ram->backed_bytes > want_bytes ? ram->backed_bytes - want_bytes : 0;
        for (uint32_t i = 0; i < ram->segments_count && ram->backed_bytes > goal; i++) {
                if (ram->segments[i].base)
                        segment_trim(ram, i, ram->backed_bytes - goal);
        }
}

void cairn_ram_trim(struct cairn_ram *ram)
{
        trim(ram, ram->backed_bytes);
}

static int segment_add(struct cairn_ram *ram, struct class *class, struct segment **ret_segment)
{
        uint32_t index = 0;
        while (index < ram->segments_count && ram->segments[index].base)
                index++;
        if (index == CAIRN_RAM_SEGMENTS_MAX)
                return CAIRN_ENOMEM;
        struct segment *segment = &ram->segments[index];
        int status = segment_map(ram, class, segment);
        if (status != CAIRN_OK)
                return status;
        if (index == ram->segments_count)
                ram->segments_count++;
        segment->class = (uint32_t)(class - ram->classes);
        segment->number = ++ram->segment_number;
        segment->next = class->first;
        class->first = (int32_t)index;
        ram->backed_bytes += segment->table_bytes;
        *ret_segment = segment;
        return CAIRN_OK;
}

bool cairn_ram_possible(const struct cairn_ram *ram, uint64_t bytes)
{
        return bytes + table_bytes_of(ram, bytes) <= ram->limit_bytes;
}

// Room in the budget for so many more bytes, giving back kept slots if need be.
static bool make_room(struct cairn_ram *ram, uint64_t bytes)
{
        if (ram->backed_bytes + bytes > ram->limit_bytes)
                trim(ram, ram->backed_bytes + bytes - ram->limit_bytes);
        return ram->backed_bytes + bytes <= ram->limit_bytes;
}

static void take(struct cairn_ram *ram, struct segment *segment, bool kept,
                 struct cairn_ram_slot *ret_slot)
{
        uint32_t slot;
        if (kept) {
                slot = segment->kept[--segment->kept_count];
                ram->classes[segment->class].kept_count--;
        } else {
                slot = segment->bare[--segment->bare_count];
                ram->backed_bytes += segment->slot_bytes;
        }
        ram->used_bytes += segment->slot_bytes;
        assert(ram->backed_bytes <= ram->limit_bytes && ram->used_bytes <= ram->backed_bytes);
        ret_slot->bytes = segment->base + segment->table_bytes + slot * segment->slot_bytes;
        ret_slot->segment = (uint32_t)(segment - ram->segments);
        ret_slot->index = slot;
}

int cairn_ram_alloc(struct cairn_ram *ram, uint32_t tenant, uint64_t bytes,
                    struct cairn_ram_slot *ret_slot)
{
        assert(bytes > 0 && bytes % PAGE == 0);
        struct class *class = class_of(ram, tenant, bytes);
        if (!class)
                return CAIRN_ENOMEM;
        if (class->kept_count == 0 && !make_room(ram, bytes))
                return CAIRN_EAGAIN;
        bool kept = class->kept_count > 0;
        for (int32_t i = class->first; i != NONE; i = ram->segments[i].next) {
                struct segment *segment = &ram->segments[i];
                if (kept ? segment->kept_count == 0 : segment->bare_count == 0)
                        continue;
                take(ram, segment, kept, ret_slot);
                return CAIRN_OK;
        }
        assert(!kept);
        if (!make_room(ram, bytes + table_bytes_of(ram, bytes)))
                return CAIRN_EAGAIN;
        struct segment *segment;
        int status = segment_add(ram, class, &segment);
        if (status != CAIRN_OK)
                return status;
        take(ram, segment, false, ret_slot);
        return CAIRN_OK;
}

// From the bottom of the stack, and by free back to its top: each once.
bool cairn_ram_take_kept(struct cairn_ram *ram, uint32_t *segment, uint32_t *left,
                         struct cairn_ram_slot *ret_slot, uint64_t *ret_bytes)
{
        for (; *segment < ram->segments_count; ++*segment, *left = UINT32_MAX) {
                struct segment *at = &ram->segments[*segment];
                if (!at->base || at->kept_count == 0 || *left == 0)
                        continue;
                if (*left > at->kept_count)
                        *left = at->kept_count;
                --*left;
                uint32_t slot = at->kept[0];
                at->kept_count--;
                memmove(at->kept, at->kept + 1, at->kept_count * sizeof(at->kept[0]));
                ram->classes[at->class].kept_count--;
                ram->used_bytes += at->slot_bytes;
                ret_slot->bytes = at->base + at->table_bytes + slot * at->slot_bytes;
                ret_slot->segment = *segment;
                ret_slot->index = slot;
                *ret_bytes = at->slot_bytes;
                return true;
        }
        return false;
}

static _Atomic uint64_t *generation_of(const struct segment *segment, uint32_t index)
{
        return (_Atomic uint64_t *)(void *)segment->base + 1 + index;
}

void cairn_ram_free(struct cairn_ram *ram, struct cairn_ram_slot *slot)
{
        assert(slot->bytes && slot->segment < ram->segments_count);
        struct segment *segment = &ram->segments[slot->segment];
        assert(slot->index < segment->slots && segment->kept_count < segment->slots);
        // Whoever sees bytes of the slot's next use sees this as well.
        atomic_fetch_add_explicit(generation_of(segment, slot->index), 1, memory_order_release);
        atomic_thread_fence(memory_order_release);
        segment->kept[segment->kept_count++] = slot->index;
        ram->classes[segment->class].kept_count++;
        ram->used_bytes -= segment->slot_bytes;
        *slot = (struct cairn_ram_slot){0};
}

uint64_t cairn_ram_used_bytes(const struct cairn_ram *ram)
{
        return ram->used_bytes;
}

uint64_t cairn_ram_backed_bytes(const struct cairn_ram *ram)
{
        return ram->backed_bytes;
}

void cairn_ram_place(const struct cairn_ram *ram, const struct cairn_ram_slot *slot,
                     struct cairn_ram_place *ret_place)
{
        const struct segment *segment = &ram->segments[slot->segment];
        ret_place->fd = segment->fd;
        ret_place->segment = segment->number;
        ret_place->index = slot->segment;
        ret_place->segment_bytes = segment->map_bytes;
        ret_place->offset = segment->table_bytes + slot->index * segment->slot_bytes;
        ret_place->generation_offset = (1 + slot->index) * sizeof(uint64_t);
        ret_place->generation =
            atomic_load_explicit(generation_of(segment, slot->index), memory_order_acquire);
}
