// The pages of an LMDB file, checked by its format (LMDB 0.9, lmdb.h's MDB_DATA_VERSION 1):
//
// page   0 number u64 | 10 flags u16 | 12 lower u16 | 14 upper u16 | 16 offsets of nodes u16...
//        an overflow page: 12 its length in pages u32 | 16 bytes of a value
// node   0 low u16 | 2 high u16 | 4 flags u16 | 6 key bytes u16 | 8 key, then value
//        low + high: the value's size; in a branch with the flags: the child's page
// meta   (in pages 0 and 1, from byte 16) 0 magic u32 | 4 version u32 | 8 address | 16 map bytes
//        24 table of free pages, whose padding is the page size | 72 table of tables
//        120 last page u64 | 128 transaction u64
// table  0 padding u32 | 4 flags u16 | 6 depth u16 | 8 branches, leaves, overflow pages, entries
// u64
//        40 root u64; none: all ones
// A value in the table of free pages: u64 count, then their numbers, falling.
#include "storage/catalog_pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/bytes.h"

enum {
        PAGE = CAIRN_CATALOG_PAGE_BYTES,
        PAGE_START = 16,
        NODE_START = 8,
        TABLE_BYTES = 48,
        META_FREE = PAGE_START + 24,
        META_MAIN = PAGE_START + 72,
        META_LAST = PAGE_START + 120,
        META_TRANSACTION = PAGE_START + 128,

        IS_BRANCH = 1,
        IS_LEAF = 2,
        IS_OVERFLOW = 4,
        IS_META = 8,
        NODE_BIG = 1,   // the value lies in overflow pages; here is their number
        NODE_TABLE = 2, // the value is a table
        TABLE_INTEGERS = 8,
        TABLE_FLAGS_KEPT = 0x4000, // the environment's, in the table of free pages

        DEPTH_MAX = 32, // of a cursor
        KEY_BYTES_MAX = 511,
        PAGE_BITS = 48
};
#define MAGIC   0xbeefc0deu
#define VERSION 1u
#define NONE    UINT64_MAX

// Sizes of the format, on which the offsets above rest.
static_assert(META_MAIN == META_FREE + TABLE_BYTES && META_LAST == META_MAIN + TABLE_BYTES,
              "a meta page holds two tables");

struct table {
        uint64_t branches;
        uint64_t leaves;
        uint64_t overflows;
        uint64_t entries;
        uint64_t root;
        uint16_t flags;
        uint16_t depth;
};

struct check {
        const uint8_t *bytes;
        uint64_t pages; // those in use begin below this number
        uint8_t *seen;  // a bit a page: in a tree, or free
};

// A tree being walked.
struct walk {
        struct check *check;
        struct table found;
        uint16_t depth;      // of the leaves
        const uint8_t *last; // the key before this one; NULL: none
        uint32_t last_bytes;
        bool last_divides; // it is a branch's: the next may be the same
        bool integers;
        bool free_pages;
        bool tables;
};

static bool walk_tree(struct check *check, const struct table *table, bool free_pages, bool tables);

static const uint8_t *page_at(const struct check *check, uint64_t number)
{
        return check->bytes + number * PAGE;
}

static void read_table(const uint8_t *bytes, struct table *ret_table)
{
        *ret_table = (struct table){.flags = cairn_get_u16(bytes + 4),
                                    .depth = cairn_get_u16(bytes + 6),
                                    .branches = cairn_get_u64(bytes + 8),
                                    .leaves = cairn_get_u64(bytes + 16),
                                    .overflows = cairn_get_u64(bytes + 24),
                                    .entries = cairn_get_u64(bytes + 32),
                                    .root = cairn_get_u64(bytes + 40)};
}

// Each page is used once.
static bool take(struct check *check, uint64_t number)
{
        if (number < 2 || number >= check->pages)
                return false;
        uint8_t bit = (uint8_t)(1 << number % 8);
        bool taken = check->seen[number / 8] & bit;
        check->seen[number / 8] |= bit;
        return !taken;
}

static bool check_free(struct check *check, const uint8_t *value, uint64_t size)
{
        if (size < 8 || cairn_get_u64(value) > size / 8 - 1)
                return false;
        uint64_t count = cairn_get_u64(value);
        uint64_t before = NONE;
        for (uint64_t i = 1; i <= count; i++) {
                uint64_t number = cairn_get_u64(value + 8 * i);
                if (number >= before || !take(check, number))
                        return false;
                before = number;
        }
        return true;
}

static int compare(const struct walk *walk, const uint8_t *key, uint32_t bytes)
{
        if (walk->integers) {
                uint64_t a = cairn_get_u64(walk->last), b = cairn_get_u64(key);
                return a < b ? -1 : a > b;
        }
        uint32_t least = bytes < walk->last_bytes ? bytes : walk->last_bytes;
        int order = memcmp(walk->last, key, least);
        return order ? order : (int)walk->last_bytes - (int)bytes;
}

// Keys rise; where a branch divides, those after it are at least its own.
static bool check_key(struct walk *walk, const uint8_t *key, uint32_t bytes, bool divides)
{
        if (bytes == 0 || bytes > KEY_BYTES_MAX || (walk->integers && bytes != 8))
                return false;
        if (walk->last) {
                int order = compare(walk, key, bytes);
                if (order > 0 || (order == 0 && !walk->last_divides))
                        return false;
        }
        walk->last = key;
        walk->last_bytes = bytes;
        walk->last_divides = divides;
        return true;
}

// The pages of a long value, whose number lies at `bytes`. NULL: they cannot be.
static const uint8_t *overflow_at(struct walk *walk, const uint8_t *bytes, uint64_t size)
{
        struct check *check = walk->check;
        uint64_t number = cairn_get_u64(bytes);
        if (number < 2 || number >= check->pages)
                return NULL;
        const uint8_t *page = page_at(check, number);
        uint64_t pages = cairn_get_u32(page + 12); // a shorter value keeps those of the one before
        if (cairn_get_u64(page) != number || cairn_get_u16(page + 10) != IS_OVERFLOW ||
            pages > check->pages - number || PAGE_START + size > pages * PAGE)
                return NULL;
        for (uint64_t i = 0; i < pages; i++) {
                if (!take(check, number + i))
                        return NULL;
        }
        walk->found.overflows += pages;
        return page + PAGE_START;
}

static bool check_value(struct walk *walk, const uint8_t *value, uint64_t size, uint16_t flags)
{
        if (walk->free_pages)
                return (flags & NODE_TABLE) == 0 && check_free(walk->check, value, size);
        if (!walk->tables)
                return (flags & NODE_TABLE) == 0;
        struct table table;
        if (flags != NODE_TABLE || size != TABLE_BYTES)
                return false;
        read_table(value, &table);
        return (table.flags & ~TABLE_INTEGERS) == 0 && walk_tree(walk->check, &table, false, false);
}

struct node {
        const uint8_t *key;
        uint32_t key_bytes;
        uint16_t flags;
        uint64_t value; // its size; in a branch: the child
        uint64_t bytes; // all of the node's
};

static void read_node(const uint8_t *bytes, bool branch, struct node *ret_node)
{
        *ret_node =
            (struct node){.key = bytes + NODE_START,
                          .key_bytes = cairn_get_u16(bytes + 6),
                          .flags = cairn_get_u16(bytes + 4),
                          .value = cairn_get_u16(bytes) | (uint32_t)cairn_get_u16(bytes + 2) << 16};
        ret_node->bytes = NODE_START + ret_node->key_bytes;
        if (branch)
                ret_node->value |= (uint64_t)ret_node->flags << 32;
        else
                ret_node->bytes += ret_node->flags & NODE_BIG ? 8 : ret_node->value;
}

// Nodes lie between `upper` and the page's end, at even places, and none upon another.
static bool check_places(const uint8_t *page, uint32_t nodes, bool branch)
{
        uint8_t used[PAGE / 2] = {0};
        uint32_t upper = cairn_get_u16(page + 14);
        for (uint32_t i = 0; i < nodes; i++) {
                struct node node;
                uint32_t at = cairn_get_u16(page + PAGE_START + 2 * i);
                if (at < upper || at % 2 != 0 || at + NODE_START > PAGE)
                        return false;
                read_node(page + at, branch, &node);
                if (node.bytes > PAGE - at)
                        return false;
                uint64_t parts = (node.bytes + 1) / 2;
                if (memchr(used + at / 2, 1, parts))
                        return false;
                memset(used + at / 2, 1, parts);
        }
        return true;
}

static bool check_leaf_node(struct walk *walk, const struct node *node)
{
        const uint8_t *value = node->key + node->key_bytes;
        if ((node->flags & ~(NODE_BIG | NODE_TABLE)) != 0 ||
            !check_key(walk, node->key, node->key_bytes, false))
                return false;
        if (node->flags & NODE_BIG)
                value = overflow_at(walk, value, node->value);
        walk->found.entries++;
        return value && check_value(walk, value, node->value, node->flags);
}

static bool check_page(struct walk *walk, uint64_t number, uint16_t depth)
{
        if (depth > walk->depth || !take(walk->check, number))
                return false;
        const uint8_t *page = page_at(walk->check, number);
        uint32_t flags = cairn_get_u16(page + 10), lower = cairn_get_u16(page + 12),
                 upper = cairn_get_u16(page + 14);
        bool branch = depth < walk->depth;
        if (cairn_get_u64(page) != number || flags != (branch ? IS_BRANCH : IS_LEAF) ||
            lower < PAGE_START || lower % 2 != 0 || lower > upper || upper % 2 != 0 || upper > PAGE)
                return false;
        uint32_t nodes = (lower - PAGE_START) / 2;
        if (nodes < (branch ? 2 : 1) || !check_places(page, nodes, branch))
                return false;
        walk->found.branches += branch;
        walk->found.leaves += !branch;
        for (uint32_t i = 0; i < nodes; i++) {
                struct node node;
                read_node(page + cairn_get_u16(page + PAGE_START + 2 * i), branch, &node);
                if (!branch) {
                        if (!check_leaf_node(walk, &node))
                                return false;
                        continue;
                }
                // The first of a branch stands for all that is less: its key is not looked at.
                if (i > 0 && !check_key(walk, node.key, node.key_bytes, true))
                        return false;
                if (!check_page(walk, node.value, (uint16_t)(depth + 1)))
                        return false;
        }
        return true;
}

static bool walk_tree(struct check *check, const struct table *table, bool free_pages, bool tables)
{
        struct walk walk = {.check = check,
                            .depth = table->depth,
                            .integers = table->flags & TABLE_INTEGERS,
                            .free_pages = free_pages,
                            .tables = tables};
        if (table->root == NONE)
                return table->depth == 0 && table->entries == 0 && table->branches == 0 &&
                       table->leaves == 0 && table->overflows == 0;
        if (table->depth == 0 || table->depth > DEPTH_MAX || !check_page(&walk, table->root, 1))
                return false;
        return walk.found.entries == table->entries && walk.found.branches == table->branches &&
               walk.found.leaves == table->leaves && walk.found.overflows == table->overflows;
}

static bool check_meta(const uint8_t *page, uint64_t number)
{
        return cairn_get_u64(page) == number && cairn_get_u16(page + 10) == IS_META &&
               cairn_get_u32(page + PAGE_START) == MAGIC &&
               cairn_get_u32(page + PAGE_START + 4) == VERSION &&
               cairn_get_u32(page + META_FREE) == PAGE;
}

bool cairn_catalog_pages_sound(const uint8_t *bytes, uint64_t size_bytes)
{
        struct table table;
        struct check check = {.bytes = bytes};
        if (size_bytes < 2 * PAGE || size_bytes >> PAGE_BITS > 0 || !check_meta(bytes, 0) ||
            !check_meta(bytes + PAGE, 1))
                return false;
        // LMDB takes the meta page of the later transaction; page 0's if they are the same.
        const uint8_t *meta = bytes;
        if (cairn_get_u64(bytes + META_TRANSACTION) <
            cairn_get_u64(bytes + PAGE + META_TRANSACTION))
                meta = bytes + PAGE;
        uint64_t last = cairn_get_u64(meta + META_LAST);
        if (last < 1 || last >= size_bytes / PAGE)
                return false;
        check.pages = last + 1;
        check.seen = calloc(check.pages / 8 + 1, 1);
        if (!check.seen)
                return false;
        read_table(meta + META_FREE, &table);
        bool sound = (table.flags & ~TABLE_FLAGS_KEPT) == TABLE_INTEGERS;
        table.flags = TABLE_INTEGERS;
        sound = sound && walk_tree(&check, &table, true, false);
        read_table(meta + META_MAIN, &table);
        sound = sound && table.flags == 0 && walk_tree(&check, &table, false, true);
        free(check.seen);
        return sound;
}
