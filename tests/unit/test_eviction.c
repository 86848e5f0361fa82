// Eviction: leaf-first and holds are never broken, lru is exact, s3fifo resists a scan, cost keeps
// what is dear, counters equal what a recount finds.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/eviction/eviction.h"
#include "policy/eviction/ghost.h"
#include "policy/eviction/heap.h"

static uint64_t seed_of_test(void)
{
        const char *text = getenv("CAIRN_TEST_SEED");
        uint64_t seed = text ? strtoull(text, NULL, 10) : 20240611;

        fprintf(stderr, "CAIRN_TEST_SEED=%llu\n", (unsigned long long)seed);
        return seed;
}

static uint64_t next_random(uint64_t *state)
{
        uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
}

static void begin(struct cairn_eviction *eviction, const char *name, uint64_t capacity,
                  bool any_order)
{
        struct cairn_eviction_options options = {
            .capacity_bytes = capacity, .ghost_entries_max = 64, .any_order = any_order};
        const struct cairn_eviction_ops *ops = cairn_eviction_by_name(name);
        void *state;

        cr_assert_not_null(ops, "%s", name);
        state = aligned_alloc(16, (ops->state_bytes(&options) + 15) / 16 * 16);
        cairn_eviction_init(eviction, ops, &options, state);
}

static void end(struct cairn_eviction *eviction)
{
        void *state = eviction->state;

        cairn_eviction_finish(eviction);
        free(state);
}

static struct cairn_eviction_node node_of(uint64_t id, uint64_t size, uint64_t us)
{
        return (struct cairn_eviction_node){.id = id, .size_bytes = size, .recompute_us = us};
}

Test(eviction, names_are_known_and_others_refused)
{
        cr_assert_not_null(cairn_eviction_by_name("lru"));
        cr_assert_not_null(cairn_eviction_by_name("s3fifo"));
        cr_assert_not_null(cairn_eviction_by_name("cost"));
        cr_assert_null(cairn_eviction_by_name("lfu"));
        cr_assert_null(cairn_eviction_by_name(NULL));
        cr_assert_str_eq(cairn_eviction_name(0), "lru");
        cr_assert_null(cairn_eviction_name(3));
}

Test(eviction, a_chain_goes_leaf_first_whatever_the_policy)
{
        for (size_t p = 0; cairn_eviction_name(p); p++) {
                struct cairn_eviction eviction;
                struct cairn_eviction_node chain[20];

                begin(&eviction, cairn_eviction_name(p), 2000, false);
                for (int i = 0; i < 20; i++) {
                        // The root is the oldest and the cheapest: every policy would like it gone.
                        chain[i] = node_of((uint64_t)i, 100, (uint64_t)i + 1);
                        cairn_eviction_insert(&eviction, &chain[i], i ? &chain[i - 1] : NULL);
                }
                for (int i = 19; i >= 0; i--) {
                        struct cairn_eviction_node *victim = cairn_eviction_victim(&eviction);

                        cr_assert_eq(victim, &chain[i], "%s", cairn_eviction_name(p));
                        cairn_eviction_remove(victim, CAIRN_EVICTION_EVICTED);
                }
                end(&eviction);
        }
}

Test(eviction, held_nodes_stay_and_come_back)
{
        for (size_t p = 0; cairn_eviction_name(p); p++) {
                struct cairn_eviction eviction;
                struct cairn_eviction_node a = node_of(1, 10, 5);
                struct cairn_eviction_node b = node_of(2, 10, 5);

                begin(&eviction, cairn_eviction_name(p), 1000, false);
                cairn_eviction_insert(&eviction, &a, NULL);
                cairn_eviction_insert(&eviction, &b, NULL);
                cairn_eviction_hold(&a);
                cairn_eviction_hold(&a);
                cr_assert_eq(cairn_eviction_victim(&eviction), &b);
                cairn_eviction_hold(&b);
                cr_assert_null(cairn_eviction_victim(&eviction), "all are held");
                cr_assert_null(cairn_eviction_victim(&eviction), "and stay so");
                cairn_eviction_unhold(&a);
                cr_assert_null(cairn_eviction_victim(&eviction), "one hold is left");
                cairn_eviction_unhold(&a);
                cr_assert_eq(cairn_eviction_victim(&eviction), &a);
                cairn_eviction_remove(&b, CAIRN_EVICTION_REMOVED); // held: a delete may
                cairn_eviction_unhold(&b);
                cr_assert_eq(cairn_eviction_victim(&eviction), &a);
                cairn_eviction_remove(&a, CAIRN_EVICTION_EVICTED);
                end(&eviction);
        }
}

Test(eviction, a_deleted_parent_leaves_roots_and_a_late_parent_blocks)
{
        struct cairn_eviction eviction;
        struct cairn_eviction_node parent = node_of(1, 10, 0);
        struct cairn_eviction_node children[3] = {node_of(2, 10, 0), node_of(3, 10, 0),
                                                  node_of(4, 10, 0)};

        begin(&eviction, "lru", 1000, false);
        cairn_eviction_insert(&eviction, &children[0], NULL);
        cairn_eviction_insert(&eviction, &parent, NULL);
        cairn_eviction_link(&children[0], &parent); // the parent came later
        cairn_eviction_insert(&eviction, &children[1], &parent);
        cairn_eviction_insert(&eviction, &children[2], &parent);
        cr_assert_eq(parent.children, 3);
        cairn_eviction_remove(&children[1], CAIRN_EVICTION_REMOVED);
        cr_assert_eq(parent.children, 2);
        cairn_eviction_remove(&parent, CAIRN_EVICTION_REMOVED);
        cr_assert_null(children[0].parent);
        cr_assert_null(children[2].parent);
        cr_assert_eq(cairn_eviction_victim(&eviction), &children[0]);
        cairn_eviction_remove(&children[0], CAIRN_EVICTION_EVICTED);
        cairn_eviction_remove(&children[2], CAIRN_EVICTION_EVICTED);
        end(&eviction);
}

Test(eviction, a_parent_in_another_tenants_eviction_is_told)
{
        struct cairn_eviction one;
        struct cairn_eviction other;
        struct cairn_eviction_node parent = node_of(1, 10, 0);
        struct cairn_eviction_node child = node_of(2, 10, 0);

        begin(&one, "lru", 1000, false);
        begin(&other, "s3fifo", 1000, false);
        cairn_eviction_insert(&one, &parent, NULL);
        cairn_eviction_insert(&other, &child, &parent);
        cr_assert_null(cairn_eviction_victim(&one));
        cairn_eviction_remove(cairn_eviction_victim(&other), CAIRN_EVICTION_EVICTED);
        cr_assert_eq(cairn_eviction_victim(&one), &parent);
        cairn_eviction_remove(&parent, CAIRN_EVICTION_EVICTED);
        end(&one);
        end(&other);
}

// A cache of equal blocks over ids: returns true on a hit.
static bool access_id(struct cairn_eviction *eviction, struct cairn_eviction_node *nodes,
                      uint64_t id, uint64_t capacity)
{
        struct cairn_eviction_node *node = &nodes[id];

        if (node->home) {
                cairn_eviction_touch(node);
                return true;
        }
        while (eviction->bytes + node->size_bytes > capacity)
                cairn_eviction_remove(cairn_eviction_victim(eviction), CAIRN_EVICTION_EVICTED);
        cairn_eviction_insert(eviction, node, NULL);
        return false;
}

static void remove_all(struct cairn_eviction *eviction, struct cairn_eviction_node *nodes,
                       size_t count)
{
        for (size_t i = 0; i < count; i++) {
                if (nodes[i].home == eviction)
                        cairn_eviction_remove(&nodes[i], CAIRN_EVICTION_REMOVED);
        }
}

Test(eviction, s3fifo_keeps_what_was_used_through_a_scan_and_lru_does_not)
{
        static struct cairn_eviction_node nodes[3000];
        size_t kept[2] = {0};

        for (int p = 0; p < 2; p++) {
                struct cairn_eviction eviction;

                begin(&eviction, p ? "s3fifo" : "lru", 1000, false);
                for (uint64_t i = 0; i < 3000; i++)
                        nodes[i] = node_of(i * 0x9e3779b97f4a7c15ull, 10, 0);
                for (int round = 0; round < 4; round++) {
                        for (uint64_t i = 0; i < 80; i++)
                                (void)access_id(&eviction, nodes, i, 1000); // warms up
                }
                for (uint64_t i = 100; i < 3000; i++)
                        (void)access_id(&eviction, nodes, i, 1000); // the scan
                for (uint64_t i = 0; i < 80; i++)
                        kept[p] += nodes[i].home != NULL;
                remove_all(&eviction, nodes, 3000);
                end(&eviction);
        }
        cr_assert_eq(kept[0], 0, "lru kept %zu", kept[0]);
        cr_assert_geq(kept[1], 70, "s3fifo kept %zu", kept[1]);
}

Test(eviction, s3fifo_remembers_the_evicted_but_not_the_deleted)
{
        struct cairn_eviction eviction;
        static struct cairn_eviction_node nodes[300];

        begin(&eviction, "s3fifo", 1000, false);
        for (uint64_t i = 0; i < 300; i++)
                nodes[i] = node_of(i * 0x9e3779b97f4a7c15ull, 10, 0);
        for (uint64_t i = 0; i < 150; i++)
                (void)access_id(&eviction, nodes, i, 1000);
        cr_assert_null(nodes[100].home, "went through small");
        (void)access_id(&eviction, nodes, 100, 1000); // remembered: into main
        cairn_eviction_remove(&nodes[149], CAIRN_EVICTION_REMOVED);
        (void)access_id(&eviction, nodes, 149, 1000); // not remembered: into small
        for (uint64_t i = 200; i < 220; i++)
                (void)access_id(&eviction, nodes, i, 1000);
        cr_assert_not_null(nodes[100].home);
        cr_assert_null(nodes[149].home);
        remove_all(&eviction, nodes, 300);
        end(&eviction);
}

Test(eviction, cost_keeps_the_dear_and_the_often_used_and_ages)
{
        enum {
                COUNT = 10000
        };
        struct cairn_eviction eviction;
        static struct cairn_eviction_node nodes[COUNT];
        uint64_t once = 100; // the next block that is used once
        size_t often = 0;

        begin(&eviction, "cost", 1000, false); // room for 100
        for (uint64_t i = 0; i < COUNT; i++)
                nodes[i] = node_of(i, 10, 100);
        nodes[0].recompute_us = 1000; // dear
        for (int round = 0; round < 20; round++) {
                for (uint64_t i = 1; i < 20; i++)
                        (void)access_id(&eviction, nodes, i, 1000);
                for (int i = 0; i < 30; i++)
                        (void)access_id(&eviction, nodes, once++, 1000);
        }
        (void)access_id(&eviction, nodes, 0, 1000);
        for (int i = 0; i < 150; i++)
                (void)access_id(&eviction, nodes, once++, 1000);
        cr_assert_null(nodes[once - 100].home, "cheap and used once");
        cr_assert_not_null(nodes[0].home, "ten times as dear");
        for (uint64_t i = 1; i < 20; i++)
                often += nodes[i].home != NULL;
        cr_assert_eq(often, 19, "%zu", often);
        for (int i = 0; i < 8000; i++) // nobody uses them any more
                (void)access_id(&eviction, nodes, once++, 1000);
        cr_assert_null(nodes[0].home, "age overtakes cost");
        cr_assert_null(nodes[1].home, "and use");
        remove_all(&eviction, nodes, COUNT);
        end(&eviction);
}

Test(eviction, a_victim_is_explained_by_the_lowest_score)
{
        static const char *const names[] = {"lru", "cost"};

        for (int p = 0; p < 2; p++) {
                struct cairn_eviction eviction;
                struct cairn_eviction_node nodes[3] = {node_of(1, 10, 500), node_of(2, 10, 40),
                                                       node_of(3, 10, 500)};
                struct cairn_eviction_reason reasons[3];
                struct cairn_eviction_node *victim;

                begin(&eviction, names[p], 1000, false);
                for (int i = 0; i < 3; i++)
                        cairn_eviction_insert(&eviction, &nodes[i], NULL);
                cairn_eviction_touch(&nodes[2]);
                victim = cairn_eviction_victim(&eviction);
                cr_assert_eq(victim, &nodes[p ? 1 : 0], "%s", names[p]);
                for (int i = 0; i < 3; i++)
                        cairn_eviction_explain(&nodes[i], &reasons[i]);
                for (int i = 0; i < 3; i++)
                        cr_assert_geq(reasons[i].score, reasons[victim - nodes].score);
                cr_assert_eq(reasons[0].numbers[0], 3, "three uses of others since its own");
                cr_assert_eq(reasons[2].numbers[1], 2, "used twice");
                if (p == 1)
                        cr_assert_eq(reasons[1].numbers[2], 4, "us a byte");
                remove_all(&eviction, nodes, 3);
                end(&eviction);
        }
}

enum {
        MODEL_NODES = 400,
        MODEL_CAPACITY = 6000
};

struct model {
        struct cairn_eviction eviction;
        struct cairn_eviction_node nodes[MODEL_NODES];
        uint64_t last_use[MODEL_NODES];
        uint64_t clock;
        uint64_t random;
        uint64_t evictions;
        uint64_t refused;
};

static void check_model(struct model *model)
{
        uint64_t bytes = 0;
        uint64_t count = 0;

        for (size_t i = 0; i < MODEL_NODES; i++) {
                const struct cairn_eviction_node *node = &model->nodes[i];
                uint32_t children = 0;

                if (!node->home) {
                        cr_assert_eq(node->children, 0);
                        cr_assert_null(node->parent);
                        continue;
                }
                bytes += node->size_bytes;
                count++;
                for (const struct cairn_eviction_node *c = node->first_child; c;
                     c = c->next_sibling) {
                        cr_assert_eq(c->parent, node);
                        cr_assert_not_null(c->home);
                        children++;
                }
                cr_assert_eq(children, node->children);
        }
        cr_assert_eq(bytes, model->eviction.bytes);
        cr_assert_eq(count, model->eviction.nodes);
}

// The victim must be free; of lru, the one that a plain search over all finds.
static void check_victim(struct model *model, const struct cairn_eviction_node *victim, bool lru)
{
        size_t oldest = MODEL_NODES;

        for (size_t i = 0; i < MODEL_NODES; i++) {
                const struct cairn_eviction_node *node = &model->nodes[i];

                if (!node->home || node->holds > 0 || node->children > 0)
                        continue;
                if (oldest == MODEL_NODES || model->last_use[i] < model->last_use[oldest])
                        oldest = i;
        }
        if (!victim) {
                cr_assert_eq(oldest, MODEL_NODES, "a free node was there");
                return;
        }
        cr_assert_eq(victim->holds, 0);
        cr_assert_eq(victim->children, 0);
        if (lru)
                cr_assert_eq(victim, &model->nodes[oldest]);
}

static void model_insert(struct model *model, size_t i, bool lru)
{
        struct cairn_eviction_node *node = &model->nodes[i];
        struct cairn_eviction_node *parent = NULL;

        *node = node_of(i * 0x9e3779b97f4a7c15ull, 1 + next_random(&model->random) % 100,
                        next_random(&model->random) % 1000);
        if (next_random(&model->random) % 4) {
                parent = &model->nodes[next_random(&model->random) % MODEL_NODES];
                if (!parent->home)
                        parent = NULL;
        }
        if (parent)
                cairn_eviction_hold(parent);
        while (model->eviction.bytes + node->size_bytes > MODEL_CAPACITY) {
                struct cairn_eviction_node *victim = cairn_eviction_victim(&model->eviction);

                check_victim(model, victim, lru);
                if (!victim) {
                        model->refused++;
                        break;
                }
                cairn_eviction_remove(victim, CAIRN_EVICTION_EVICTED);
                model->evictions++;
        }
        if (model->eviction.bytes + node->size_bytes <= MODEL_CAPACITY) {
                cairn_eviction_insert(&model->eviction, node, parent);
                model->last_use[i] = ++model->clock;
        }
        if (parent)
                cairn_eviction_unhold(parent);
}

static void model_step(struct model *model, bool lru)
{
        uint64_t what = next_random(&model->random) % 100;
        size_t i = next_random(&model->random) % MODEL_NODES;
        struct cairn_eviction_node *node = &model->nodes[i];

        if (!node->home) {
                if (node->holds == 0)
                        model_insert(model, i, lru);
        } else if (what < 50) {
                cairn_eviction_touch(node);
                model->last_use[i] = ++model->clock;
        } else if (what < 65) {
                if (node->holds < 3)
                        cairn_eviction_hold(node);
        } else if (what < 85) {
                if (node->holds > 0)
                        cairn_eviction_unhold(node);
        } else if (what < 90) {
                if (node->holds == 0)
                        cairn_eviction_remove(node, CAIRN_EVICTION_REMOVED);
        } else if (what < 91) {
                cairn_eviction_resize(&model->eviction, 3000 + what * 40);
        } else {
                check_victim(model, cairn_eviction_victim(&model->eviction), lru);
        }
}

Test(eviction, random_operations_never_break_leaf_first_or_holds)
{
        static struct model model;
        uint64_t seed = seed_of_test();

        for (size_t p = 0; cairn_eviction_name(p); p++) {
                memset(&model, 0, sizeof(model));
                model.random = seed + p;
                begin(&model.eviction, cairn_eviction_name(p), MODEL_CAPACITY, false);
                for (int step = 0; step < 60000; step++) {
                        model_step(&model, strcmp(cairn_eviction_name(p), "lru") == 0);
                        if (step % 500 == 0)
                                check_model(&model);
                }
                cr_assert_gt(model.evictions, 1000, "%s evicted %llu", cairn_eviction_name(p),
                             (unsigned long long)model.evictions);
                remove_all(&model.eviction, model.nodes, MODEL_NODES);
                end(&model.eviction);
        }
}

Test(eviction, ghost_is_bounded_by_entries_and_bytes)
{
        uint64_t random = seed_of_test();
        struct cairn_ghost ghost;
        void *memory = aligned_alloc(16, (cairn_ghost_bytes(37) + 15) / 16 * 16);
        uint64_t live[64]; // the newest ids, as a plain list
        size_t count = 0;

        cairn_ghost_init(&ghost, 37, 350, memory);
        for (int step = 0; step < 50000; step++) {
                uint64_t id = next_random(&random) % 97;
                size_t at = 0;

                while (at < count && live[at] != id)
                        at++;
                if (next_random(&random) % 3 == 0) {
                        cr_assert_eq(cairn_ghost_take(&ghost, id), at < count, "step %d", step);
                        if (at < count)
                                memmove(&live[at], &live[at + 1], (--count - at) * 8);
                } else if (at == count) { // re-adding shortens the ring; kept apart below
                        cairn_ghost_add(&ghost, id, 10);
                        live[count++] = id;
                        while (count > 35)
                                memmove(live, live + 1, --count * 8);
                }
                cr_assert_leq(ghost.bytes, 350);
                cr_assert_leq(ghost.entries, 37);
                // Taken entries keep their place in the ring, so that it may forget sooner.
                if (ghost.bytes != 10 * count) {
                        cr_assert_lt(ghost.bytes, 10 * count);
                        memmove(live, live + (count - ghost.bytes / 10), ghost.bytes / 10 * 8);
                        count = ghost.bytes / 10;
                }
        }
        cairn_ghost_add(&ghost, 5, 351); // larger than all: ignored
        cr_assert_not(cairn_ghost_take(&ghost, 1000));
        cairn_ghost_resize(&ghost, 0);
        cr_assert_eq(ghost.bytes, 0);
        free(memory);
}

Test(eviction, heap_gives_nodes_in_order_and_removes_any)
{
        static struct cairn_eviction_node nodes[1000];
        struct cairn_eviction_heap heap = {0};
        uint64_t random = seed_of_test();
        double last = -1;
        size_t out = 0;

        for (size_t i = 0; i < 1000; i++) {
                nodes[i].rank = (double)(next_random(&random) % 300);
                nodes[i].order = i;
                cairn_eviction_heap_push(&heap, &nodes[i]);
                if (i % 5 == 4)
                        cairn_eviction_heap_remove(&heap, &nodes[i - 2]);
        }
        while (heap.root) {
                cr_assert_geq(heap.root->rank, last);
                last = heap.root->rank;
                cairn_eviction_heap_remove(&heap, heap.root);
                out++;
        }
        cr_assert_eq(out, 800);
}
