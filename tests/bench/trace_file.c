// A trace in memory, and its file format (TRACE.md).
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/trace.h"

enum {
        LINE_BYTES_MAX = 512,
        FIELDS = 5
};

// Finds blocks by id while a file is read: open addressing, index plus 1.
struct index {
        uint32_t *slots;
        uint32_t count; // a power of two
        uint32_t used;
};

void cairn_trace_init(struct cairn_trace *trace)
{
        *trace = (struct cairn_trace){0};
}

void cairn_trace_finish(struct cairn_trace *trace)
{
        free(trace->blocks);
        free(trace->uses);
        *trace = (struct cairn_trace){0};
}

static void *grown(void *items, uint32_t count, uint32_t *max, size_t size)
{
        if (count < *max)
                return items;
        *max = *max ? *max * 2 : 4096;
        items = realloc(items, *max * size);
        if (!items)
                abort();
        return items;
}

uint32_t cairn_trace_add_block(struct cairn_trace *trace, uint64_t id, uint64_t size_bytes,
                               uint64_t recompute_us, uint32_t parent)
{
        trace->blocks =
            grown(trace->blocks, trace->n_blocks, &trace->blocks_max, sizeof(*trace->blocks));
        trace->blocks[trace->n_blocks] = (struct cairn_trace_block){
            .id = id, .size_bytes = size_bytes, .recompute_us = recompute_us, .parent = parent};
        return trace->n_blocks++;
}

void cairn_trace_add_use(struct cairn_trace *trace, uint64_t time_ms, uint32_t block)
{
        trace->uses = grown(trace->uses, trace->n_uses, &trace->uses_max, sizeof(*trace->uses));
        trace->uses[trace->n_uses++] =
            (struct cairn_trace_use){.time_ms = time_ms, .block = block, .next = CAIRN_TRACE_NONE};
}

void cairn_trace_seal(struct cairn_trace *trace)
{
        uint32_t *next = malloc(((size_t)trace->n_blocks + 1) * sizeof(*next));

        if (!next)
                abort();
        memset(next, 0xff, ((size_t)trace->n_blocks + 1) * sizeof(*next));
        for (uint32_t i = trace->n_uses; i-- > 0;) {
                trace->uses[i].next = next[trace->uses[i].block];
                next[trace->uses[i].block] = i;
        }
        trace->footprint_bytes = 0;
        for (uint32_t b = 0; b < trace->n_blocks; b++) {
                if (next[b] != CAIRN_TRACE_NONE) // used at all
                        trace->footprint_bytes += trace->blocks[b].size_bytes;
        }
        free(next);
}

static uint32_t *index_slot(struct index *index, const struct cairn_trace *trace, uint64_t id)
{
        uint32_t at = (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 32) & (index->count - 1);

        while (index->slots[at] != 0 && trace->blocks[index->slots[at] - 1].id != id)
                at = (at + 1) & (index->count - 1);
        return &index->slots[at];
}

static void index_grow(struct index *index, const struct cairn_trace *trace)
{
        if (2 * (index->used + 1) < index->count)
                return;
        free(index->slots);
        index->count = index->count ? index->count * 2 : 1024;
        index->slots = calloc(index->count, sizeof(*index->slots));
        if (!index->slots)
                abort();
        for (uint32_t b = 0; b < trace->n_blocks; b++)
                *index_slot(index, trace, trace->blocks[b].id) = b + 1;
}

// Fields of a line as numbers; a parent of "-" reads as `missing`. NULL, or what is wrong.
static const char *parse_line(char *line, uint64_t fields[FIELDS], bool *ret_root)
{
        char *rest = line;

        *ret_root = false;
        for (int f = 0; f < FIELDS; f++) {
                char *word = strtok_r(rest, " \t\r\n", &rest);
                char *end;

                if (!word)
                        return "five fields are needed: time id size cost parent";
                if (f == FIELDS - 1 && strcmp(word, "-") == 0) {
                        *ret_root = true;
                        fields[f] = 0;
                        continue;
                }
                errno = 0;
                fields[f] = strtoull(word, &end, 0);
                if (errno != 0 || *end != 0 || *word == '-')
                        return "a field is no unsigned 64-bit number";
        }
        if (strtok_r(rest, " \t\r\n", &rest))
                return "more than five fields";
        if (fields[2] == 0)
                return "a block has no size";
        return NULL;
}

static const char *add_line(struct cairn_trace *trace, struct index *index,
                            const uint64_t fields[FIELDS], bool root)
{
        uint32_t parent = CAIRN_TRACE_NONE;
        uint32_t *slot;

        index_grow(index, trace);
        if (!root) {
                slot = index_slot(index, trace, fields[4]);
                if (*slot == 0)
                        return "its parent has not been used before";
                parent = *slot - 1;
        }
        slot = index_slot(index, trace, fields[1]);
        if (*slot == 0) {
                *slot = cairn_trace_add_block(trace, fields[1], fields[2], fields[3], parent) + 1;
                index->used++;
        } else {
                const struct cairn_trace_block *block = &trace->blocks[*slot - 1];

                if (block->size_bytes != fields[2] || block->parent != parent)
                        return "the block had another size or parent before";
        }
        if (trace->n_uses == CAIRN_TRACE_USES_MAX)
                return "too many uses";
        cairn_trace_add_use(trace, fields[0], *slot - 1);
        return NULL;
}

int cairn_trace_read(struct cairn_trace *trace, const char *path)
{
        FILE *file = fopen(path, "r");
        struct index index = {0};
        char line[LINE_BYTES_MAX];
        const char *wrong = NULL;
        unsigned long number = 0;

        if (!file) {
                fprintf(stderr, "%s: %s\n", path, strerror(errno));
                return -1;
        }
        while (!wrong && fgets(line, sizeof(line), file)) {
                uint64_t fields[FIELDS];
                bool root;

                number++;
                if (!strchr(line, '\n') && !feof(file)) {
                        wrong = "the line is too long";
                        break;
                }
                if (line[strspn(line, " \t\r\n")] == 0 || line[strspn(line, " \t")] == '#')
                        continue;
                wrong = parse_line(line, fields, &root);
                if (!wrong)
                        wrong = add_line(trace, &index, fields, root);
        }
        if (!wrong && (ferror(file) || trace->n_uses == 0))
                wrong = ferror(file) ? "cannot be read" : "holds no uses";
        if (wrong)
                fprintf(stderr, "%s:%lu: %s\n", path, number, wrong);
        fclose(file);
        free(index.slots);
        if (!wrong)
                cairn_trace_seal(trace);
        return wrong ? -1 : 0;
}

int cairn_trace_save(const struct cairn_trace *trace, const char *path)
{
        FILE *file = fopen(path, "w");
        bool failed;

        if (!file) {
                fprintf(stderr, "%s: %s\n", path, strerror(errno));
                return -1;
        }
        fprintf(file, "# time_ms id size_bytes recompute_us parent\n");
        for (uint32_t i = 0; i < trace->n_uses; i++) {
                const struct cairn_trace_block *block = &trace->blocks[trace->uses[i].block];

                fprintf(file, "%" PRIu64 " 0x%" PRIx64 " %" PRIu64 " %" PRIu64,
                        trace->uses[i].time_ms, block->id, block->size_bytes, block->recompute_us);
                if (block->parent == CAIRN_TRACE_NONE)
                        fprintf(file, " -\n");
                else
                        fprintf(file, " 0x%" PRIx64 "\n", trace->blocks[block->parent].id);
        }
        failed = ferror(file) != 0;
        if (fclose(file) != 0 || failed) {
                fprintf(stderr, "%s: cannot be written\n", path);
                return -1;
        }
        return 0;
}
