// A binary heap whose things know their places.
#include "storage/heap.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "proto/status.h"

void cairn_heap_finish(struct cairn_heap *heap)
{
        free(heap->items);
        *heap = (struct cairn_heap){0};
}

int cairn_heap_reserve(struct cairn_heap *heap, uint32_t count)
{
        if (count <= heap->capacity)
                return CAIRN_OK;
        uint32_t capacity = heap->capacity ? heap->capacity : 64;
        while (capacity < count)
                capacity *= 2;
        struct cairn_heap_item *items = realloc(heap->items, capacity * sizeof(*items));
        if (!items)
                return CAIRN_ENOMEM;
        heap->items = items;
        heap->capacity = capacity;
        return CAIRN_OK;
}

static void set_item(struct cairn_heap *heap, uint32_t at, struct cairn_heap_item item)
{
        heap->items[at] = item;
        *item.place = at;
}

static void move_up(struct cairn_heap *heap, uint32_t at, struct cairn_heap_item item)
{
        while (at > 0 && heap->items[(at - 1) / 2].key > item.key) {
                set_item(heap, at, heap->items[(at - 1) / 2]);
                at = (at - 1) / 2;
        }
        set_item(heap, at, item);
}

static void move_down(struct cairn_heap *heap, uint32_t at, struct cairn_heap_item item)
{
        for (;;) {
                uint32_t child = 2 * at + 1;
                if (child >= heap->count)
                        break;
                if (child + 1 < heap->count && heap->items[child + 1].key < heap->items[child].key)
                        child++;
                if (heap->items[child].key >= item.key)
                        break;
                set_item(heap, at, heap->items[child]);
                at = child;
        }
        set_item(heap, at, item);
}

bool cairn_heap_set(struct cairn_heap *heap, uint32_t *place, uint64_t key)
{
        struct cairn_heap_item item = {key, place};
        if (*place == CAIRN_HEAP_OUT) {
                if (cairn_heap_reserve(heap, heap->count + 1) != CAIRN_OK)
                        return false;
                move_up(heap, heap->count++, item);
                return true;
        }
        assert(*place < heap->count && heap->items[*place].place == place);
        if (heap->items[*place].key >= key)
                move_up(heap, *place, item);
        else
                move_down(heap, *place, item);
        return true;
}

void cairn_heap_remove(struct cairn_heap *heap, uint32_t *place)
{
        if (*place == CAIRN_HEAP_OUT)
                return;
        uint32_t at = *place;
        assert(at < heap->count && heap->items[at].place == place);
        *place = CAIRN_HEAP_OUT;
        struct cairn_heap_item last = heap->items[--heap->count];
        if (at == heap->count)
                return;
        if (at > 0 && heap->items[(at - 1) / 2].key > last.key)
                move_up(heap, at, last);
        else
                move_down(heap, at, last);
}

const struct cairn_heap_item *cairn_heap_top(const struct cairn_heap *heap)
{
        return heap->count > 0 ? &heap->items[0] : NULL;
}
