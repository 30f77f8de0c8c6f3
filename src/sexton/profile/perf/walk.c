/* The hot loops of the profile engine: walking the records of perf.data, storing each stack once, and
 * growing a tree of stacks. Plain C99 without Python.h: native.py loads it; NativeWalker there and
 * profile/stack_tree.py call it. Without it walk_numpy.py and stack_tree.py give the same arrays.
 *
 * The input is untrusted: nothing is read past the end of a record, every count is checked against
 * the bytes that exist before it is used, every loop is bounded by its input, memory grows with what
 * is stored, and a failed allocation is a result (NO_MEMORY), never a crash. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PUT(column, type, value) (((type *)(column)->at)[(column)->used++] = (type)(value))

enum { BAD_RECORD = -1, NO_MEMORY = -2, MOST = 0x7ffffffe };
enum { TYPE_SAMPLE = 9, KERNEL = 1, USER = 2 }; /* the latter of misc & 7 */
enum { BATCH = 16, MEMOS = 4096, RECORD = 65535, STEPS = 10, READ = 0, CHAIN = 1 };
/* Columns in the order of walk.Columns, then those that come as pairs, then the inner ones. */
enum { TIME, CPU, PID, TID, COMM, CGROUP, EVENT, STACK, STACK_COMM, STACK_START, STACK_FRAME, OUTS };
enum { FRAMES, CGROUPS, STACKS, IDS, SETS };

struct column { char *at; uint64_t used, room, width; };
struct pair { uint64_t a, b; };
struct set { struct column keys; uint32_t *slot; uint64_t slots; };
/* From `since` on `key` has `value`; sorted by (key, since). A memo keeps one answer and its span. */
struct since { const int32_t *key; const int64_t *since; const int32_t *value; uint64_t n; };
struct memo { int64_t from, until; int32_t key, value; };
/* A part of a sample: a count of `counted` bytes (0, 4 or 8), then `always` bytes, then `each` bytes
 * per count, then `some` bytes unless the count was 0. */
struct step { uint64_t counted, always, each, some; };
/* Offsets from the record's start, 0 where a sample has no such field; `head`: where steps begin. */
struct layout { uint64_t ip, tid, time, cpu, head, has_chain, has_cgroup; struct step step[STEPS]; };
struct plan {
    const struct layout *layouts; const uint64_t *ids; const int32_t *id_event;
    uint64_t n_ids, id_at; /* id_at 0: there is one event only */
    struct since comms, spaces;
};
struct stream { const uint8_t *data; uint64_t size, at, bad; };
struct record { uint32_t type; uint16_t misc, size; const uint8_t *at; };
struct sample {
    int64_t time; uint64_t cgroup, depth; const uint8_t *chain; struct pair hash;
    int32_t ids[2], cpu, comm, mode, event; /* ids: pid, tid */
};
/* Made by the caller, all zeros but the plan and the columns' widths, and freed by it. */
struct walk {
    struct plan plan; struct column out[OUTS]; struct set set[SETS];
    struct memo comms[MEMOS], spaces[MEMOS];
};

uint32_t sexton_crc(void) { return SEXTON_CRC; }
uint64_t sexton_size(void) { return sizeof(struct walk); }
void *sexton_resize(void *memory, uint64_t size) { return realloc(memory, size); }
void sexton_free(void *memory) { free(memory); }

static int room(struct column *c, uint64_t more) {
    uint64_t wanted = c->room ? c->room : 256;
    if (c->room - c->used >= more) return 0;
    while (wanted - c->used < more) wanted += wanted / 2;
    char *at = wanted > SIZE_MAX / 2 / c->width ? NULL : realloc(c->at, wanted * c->width);
    if (!at) return NO_MEMORY;
    c->at = at, c->room = wanted;
    return 0;
}

static uint64_t mixed(struct pair p) {
    uint64_t h = (p.a ^ p.b * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static int rehash(struct set *s) {
    uint64_t slots = s->slots ? s->slots * 2 : 1024;
    uint32_t *slot = calloc(slots, sizeof *slot);
    const struct pair *keys = (const struct pair *)s->keys.at;
    if (!slot) return NO_MEMORY;
    for (uint64_t i = 0; i < s->keys.used; i++) {
        uint64_t at = mixed(keys[i]) & (slots - 1);
        while (slot[at]) at = (at + 1) & (slots - 1);
        slot[at] = (uint32_t)i + 1;
    }
    free(s->slot);
    s->slot = slot, s->slots = slots;
    return 0;
}

/* The number of (a, b) in order of first appearance; -1 when it is not there and not to be added. */
int64_t sexton_place(struct set *s, uint64_t a, uint64_t b, int add) {
    if (s->keys.used * 2 >= s->slots && rehash(s)) return NO_MEMORY;
    uint64_t at = mixed((struct pair){a, b}) & (s->slots - 1);
    for (; s->slot[at]; at = (at + 1) & (s->slots - 1)) {
        const struct pair *key = (const struct pair *)s->keys.at + s->slot[at] - 1;
        if (key->a == a && key->b == b) return s->slot[at] - 1;
    }
    if (!add) return -1;
    if (s->keys.used >= MOST || room(&s->keys, 1)) return NO_MEMORY;
    ((struct pair *)s->keys.at)[s->keys.used] = (struct pair){a, b};
    s->slot[at] = (uint32_t)++s->keys.used;
    return (int64_t)s->keys.used - 1;
}

static int32_t value_at(const struct since *s, struct memo *memos, int32_t key, int64_t time,
                        int32_t none) {
    struct memo *m = memos + ((uint32_t)key * 2654435761u >> 20);
    if (m->key == key && m->from <= time && time < m->until) return m->value;
    uint64_t low = 0, high = s->n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (s->key[mid] < key || (s->key[mid] == key && s->since[mid] <= time)) low = mid + 1;
        else high = mid;
    }
    int found = low > 0 && s->key[low - 1] == key, more = low < s->n && s->key[low] == key;
    *m = (struct memo){found ? s->since[low - 1] : INT64_MIN, more ? s->since[low] : INT64_MAX,
                       key, found ? s->value[low - 1] : none};
    return m->value;
}

/* 1: `r` is the next whole record; 0: there is none; BAD_RECORD: what stands at `in->at` is none. */
static int next(struct stream *in, struct record *r) {
    if (in->size - in->at < 8) return 0;
    r->at = in->data + in->at;
    memcpy(r, r->at, 8);
    if (r->size < 8) return BAD_RECORD;
    if (in->size - in->at < r->size) return 0;
    in->at += r->size;
    return 1;
}

/* Pass 1: where the records are that are no samples; stops when `offsets` is full. */
int64_t sexton_side(struct stream *in, int64_t *offsets, int64_t most) {
    struct record r;
    int64_t n = 0;
    int got = 1;
    while (n < most && (got = next(in, &r)) > 0)
        if (r.type != TYPE_SAMPLE) offsets[n++] = r.at - in->data;
    return got < 0 ? got : n;
}

/* Moves `at` on by a step and gives its count; past the end it moves to NULL, and stays there. */
static uint64_t pass(const uint8_t **at, const uint8_t *end, const struct step *s) {
    uint64_t count = 0, left = *at ? (uint64_t)(end - *at) : 0;
    int bad = !*at || left < s->counted;
    if (!bad) memcpy(&count, *at, s->counted);
    uint64_t items = !s->each ? 0 : count > RECORD ? RECORD + 1 : count;
    uint64_t size = s->counted + s->always + items * s->each + (count ? s->some : 0);
    *at = bad || left < size ? NULL : *at + size;
    return count;
}

/* 1 when the sample fits its record. */
static int parse(struct walk *w, const struct record *r, struct sample *s) {
    uint64_t id = 0, id_at = w->plan.id_at;
    int64_t number = -1;
    if (id_at && r->size < id_at + 8) return 0;
    if (id_at) memcpy(&id, r->at + id_at, 8);
    /* perf, too, takes id 0 for the first event. */
    if (id && (number = sexton_place(&w->set[IDS], id, 0, 0)) < 0) return 0;
    *s = (struct sample){.event = id ? w->plan.id_event[number] : 0, .mode = r->misc & 7,
                         .ids = {-1, -1}, .cpu = -1};
    const struct layout *l = w->plan.layouts + s->event;
    if (r->size < l->head) return 0;
    if (l->tid) memcpy(s->ids, r->at + l->tid, 8);
    if (l->time) memcpy(&s->time, r->at + l->time, 8);
    if (l->cpu) memcpy(&s->cpu, r->at + l->cpu, 4);
    const uint8_t *at = r->at + l->head, *end = r->at + r->size, *chain;
    pass(&at, end, l->step + READ);
    chain = at;
    s->depth = pass(&at, end, l->step + CHAIN);
    s->chain = s->depth && l->has_chain && at ? chain + 8 : r->at + l->ip;
    if (!s->depth || !l->has_chain) s->depth = l->ip ? 1 : 0; /* a chain may be left empty */
    for (int i = CHAIN + 1; i < STEPS; i++) s->cgroup = pass(&at, end, l->step + i);
    return at != NULL;
}

/* Hashes the stack; or, when `adding`, writes down its frames, leaf first. */
static int unwind(struct walk *w, struct sample *s, int adding) {
    uint64_t ip, space = 0, a = (uint64_t)s->comm * 0xd6e8feb86659fd93u, b = ~a * 0x9e3779b97f4a7c15u;
    int32_t mode = s->mode, looked = -1;
    if (adding && room(w->out + STACK_FRAME, s->depth)) return NO_MEMORY;
    for (uint64_t i = 0; i < s->depth; i++) {
        memcpy(&ip, s->chain + 8 * i, 8);
        if (ip >= (uint64_t)-4095) {
            mode = ip == (uint64_t)-128 ? KERNEL : ip == (uint64_t)-512 ? USER : 0;
            continue;
        }
        if (mode != looked)
            space = mode == KERNEL ? 0 : mode != USER ? (uint64_t)-1
                  : (uint64_t)value_at(&w->plan.spaces, w->spaces, s->ids[0], s->time, -1);
        looked = mode;
        if (adding) {
            int64_t frame = sexton_place(&w->set[FRAMES], ip, space, 1);
            if (frame < 0) return NO_MEMORY;
            PUT(w->out + STACK_FRAME, int32_t, frame);
        }
        ip += space * 0x9e3779b97f4a7c15u;
        a = (a ^ ip) * 0xff51afd7ed558ccdu, a ^= a >> 32;
        b = (b + ip) * 0xc4ceb9fe1a85ec53u, b ^= b >> 29;
    }
    s->hash = (struct pair){a, b};
    return 0;
}

static int keep(struct walk *w, struct sample *s) {
    struct column *o = w->out;
    int64_t known = (int64_t)w->set[STACKS].keys.used, cgroup = 0;
    int64_t stack = sexton_place(&w->set[STACKS], s->hash.a, s->hash.b, 1);
    int has_cgroup = w->plan.layouts[s->event].has_cgroup != 0;
    if (has_cgroup) cgroup = sexton_place(&w->set[CGROUPS], s->cgroup, 0, 1);
    if (stack < 0 || cgroup < 0 || (stack == known && unwind(w, s, 1))) return NO_MEMORY;
    for (int i = 0; i < OUTS; i++)
        if (room(o + i, 1)) return NO_MEMORY;
    if (stack == known)
        PUT(o + STACK_COMM, int32_t, s->comm), PUT(o + STACK_START, int64_t, o[STACK_FRAME].used);
    PUT(o + TIME, int64_t, s->time), PUT(o + CPU, int32_t, s->cpu);
    PUT(o + PID, int32_t, s->ids[0]), PUT(o + TID, int32_t, s->ids[1]);
    PUT(o + COMM, int32_t, s->comm), PUT(o + CGROUP, int32_t, has_cgroup ? cgroup : -1);
    PUT(o + EVENT, int16_t, s->event), PUT(o + STACK, int32_t, stack);
    return 0;
}

/* Pass 2. Hashes run ahead of their look-ups, so that memory is there when it is wanted. */
int64_t sexton_samples(struct walk *w, struct stream *in) {
    struct record r;
    struct sample s[BATCH];
    struct set *known = &w->set[STACKS];
    for (int got = 1, n = 0; got > 0; n = 0) {
        while (n < BATCH && (got = next(in, &r)) > 0) {
            if (r.type != TYPE_SAMPLE) continue;
            if (!parse(w, &r, s + n)) { in->bad++; continue; }
            int32_t tid = s[n].ids[1], unnamed = tid < 0 || tid > MOST ? -1 : -2 - tid;
            s[n].comm = value_at(&w->plan.comms, w->comms, tid, s[n].time, unnamed);
            unwind(w, s + n, 0);
            if (known->slots) __builtin_prefetch(known->slot + (mixed(s[n].hash) & (known->slots - 1)));
            n++;
        }
        for (int i = 0; i < n; i++)
            if (keep(w, s + i)) return NO_MEMORY;
        if (got < 0) return got;
    }
    return 0;
}

struct stacks { const int32_t *root; const int64_t *start; const int32_t *frame; uint64_t n; };
struct item { uint64_t key; uint32_t stack; };

/* One more than the frame `depth` below the root, whose own depth is 0; 0 past the leaf. */
static uint64_t frame_at(const struct stacks *in, uint32_t stack, uint64_t depth) {
    const int64_t *start = in->start + stack;
    if (depth > (uint64_t)(start[1] - start[0])) return 0;
    return (uint64_t)(depth ? in->frame[start[1] - (int64_t)depth] : in->root[stack]) + 1;
}

/* Sorts stacks by their frames from the root on, two at a time. Where the memory lies chooses the
 * pivot: no file can be written that makes it the worst one every time. */
static void sort(const struct stacks *in, struct item *it, uint64_t n, uint64_t depth) {
    while (n > 1) {
        uint64_t low = 0, high = n, pivot = it[mixed((struct pair){(uintptr_t)it, n}) % n].key;
        for (uint64_t i = 0; i < high;) {
            struct item moved = it[i];
            if (moved.key < pivot) { it[i++] = it[low]; it[low++] = moved; }
            else if (moved.key > pivot) { it[i] = it[--high]; it[high] = moved; }
            else i++;
        }
        sort(in, it, low, depth);
        sort(in, it + high, n - high, depth);
        if (!(uint32_t)pivot) return; /* they all end here */
        it += low, n = high - low, depth += 2;
        for (uint64_t i = 0; n > 1 && i < n; i++)
            it[i].key = frame_at(in, it[i].stack, depth) << 32 | frame_at(in, it[i].stack, depth + 1);
    }
}

static int add_node(struct column *out, uint64_t frame, uint64_t depth) {
    if (out->used >= MOST || room(out, 1) || room(out + 1, 1) || room(out + 2, 1)) return NO_MEMORY;
    PUT(out, int32_t, frame), PUT(out + 1, int32_t, depth), PUT(out + 2, int32_t, 0);
    return 0;
}

/* The tree of the stacks in pre-order, children by frame: `out` is frame, depth and end of its nodes,
 * `leaf` each stack's node. `items` has room for every stack, `path` for the deepest and two more. */
int64_t sexton_grow(const struct stacks *in, struct item *items, int32_t *path, struct column *out,
                    int32_t *leaf) {
    for (uint32_t i = 0; i < in->n; i++)
        items[i] = (struct item){frame_at(in, i, 0) << 32 | frame_at(in, i, 1), i};
    sort(in, items, in->n, 0);
    if (add_node(out, 0, 0)) return NO_MEMORY;
    uint64_t open = 0, same, frame; /* path[1] to path[open] are open below the root, path[0] */
    path[0] = 0;
    for (uint64_t i = 0; i < in->n; i++) {
        uint32_t stack = items[i].stack, before = items[i ? i - 1 : 0].stack;
        for (same = 0; i && (frame = frame_at(in, stack, same)); same++)
            if (frame != frame_at(in, before, same)) break;
        for (; open > same; open--) ((int32_t *)out[2].at)[path[open]] = (int32_t)out->used;
        while ((frame = frame_at(in, stack, open))) {
            path[++open] = (int32_t)out->used;
            if (add_node(out, frame - 1, open)) return NO_MEMORY;
        }
        leaf[stack] = path[open];
    }
    for (same = 0; same <= open; same++) ((int32_t *)out[2].at)[path[same]] = (int32_t)out->used;
    return 0;
}
