/* Feeds walk.c with mutated records under ASan and UBSan: walk_harness SECONDS SEED LAST CASE...
 *
 * A case is a plan as walk_plan.py makes it and a stream of records. Streams are mutated, copied to
 * memory of their exact size, and walked twice: at once, and in pieces. Both must tell the same,
 * every number must point into its table, and the tree grown from it must be one. Sometimes memory
 * runs out in the middle. The stream being tried is kept in LAST, for when it kills us. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t state, failing; /* failing: one allocation in as many fails; 0: none */

static uint64_t chance(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return below ? (state >> 11) % below : 0;
}

static void *try_realloc(void *old, size_t size) {
    return failing && !chance(failing) ? NULL : realloc(old, size);
}

static void *try_calloc(size_t n, size_t size) {
    return failing && !chance(failing) ? NULL : calloc(n, size);
}

#define SEXTON_CRC 0
#define realloc try_realloc
#define calloc try_calloc
#include WALK_C
#undef realloc
#undef calloc

enum { LONGEST = 1 << 16, CASES = 256 };
struct example { struct plan plan; uint8_t *stream; uint64_t size; };

static void insist(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

static void *exactly(const void *from, uint64_t size) {
    void *made = malloc(size);
    insist(made != NULL, "no memory for the harness");
    if (size) memcpy(made, from, size);
    return made;
}

static void *section(FILE *file, uint64_t *count, uint64_t width) {
    insist(fread(count, 8, 1, file) == 1 && *count < 1 << 24, "a case has no section");
    void *made = malloc(*count * width);
    insist(made && fread(made, width, *count, file) == *count, "a case is cut off");
    return made;
}

static struct example loaded(const char *path) {
    struct example e;
    uint64_t n;
    FILE *file = fopen(path, "rb");
    insist(file != NULL, path);
    e.plan.layouts = section(file, &n, sizeof(struct layout));
    e.plan.ids = section(file, &e.plan.n_ids, 8);
    e.plan.id_event = section(file, &n, 4);
    e.plan.id_at = 0;
    insist(fread(&e.plan.id_at, 8, 1, file) == 1, "a case has no place for ids");
    struct since *both[2] = {&e.plan.comms, &e.plan.spaces};
    for (int i = 0; i < 2; i++) {
        both[i]->key = section(file, &both[i]->n, 4);
        both[i]->since = section(file, &n, 8);
        both[i]->value = section(file, &n, 4);
    }
    e.stream = section(file, &e.size, 1);
    fclose(file);
    return e;
}

static uint64_t mutated(const struct example *from, const struct example *other, uint8_t *to) {
    static const uint64_t ODD[] = {0, 1, 7, 8, 9, 0xffff, 0x7fffffff, 0xffffffff, UINT64_MAX,
        (uint64_t)-128, (uint64_t)-512, (uint64_t)-4095, 1ull << 61, 1ull << 32, INT64_MIN};
    uint64_t start = chance(4) ? 0 : chance(from->size + 1) & ~(uint64_t)7;
    uint64_t size = from->size - start;
    if (size > LONGEST) size = LONGEST;
    memcpy(to, from->stream + start, size);
    for (uint64_t times = chance(8); times && size >= 8; times--) {
        uint64_t at = chance(size - 7), value = ODD[chance(sizeof ODD / sizeof *ODD)];
        uint64_t run = 1 + chance(64), source = chance(other->size);
        if (run > other->size - source) run = other->size - source;
        if (run > size - at) run = size - at;
        uint64_t little = 8 + chance(64), header = TYPE_SAMPLE | chance(8) << 32 | little << 48;
        switch (chance(7)) {
        case 0: to[at] ^= (uint8_t)(1u << chance(8)); break;
        case 1: memcpy(to + (at & ~(uint64_t)7), &value, 8); break;
        case 2: memcpy(to + at, &value, 1 + chance(8)); break;
        case 3: memcpy(to + at, other->stream + source, run); break;
        case 4: memmove(to + at, to + chance(size - 7), 8); break;
        case 5: /* the last record, and a small one: whatever is read past it is seen */
            memcpy(to + at, &header, 8);
            if (size - at > little) size = at + little;
            break;
        default: size = chance(4) ? size : at; break;
        }
    }
    return size;
}

static struct walk *begun(const struct plan *plan) {
    static const uint64_t WIDTH[OUTS] = {8, 4, 4, 4, 4, 4, 2, 4, 4, 8, 4};
    struct walk *w = calloc(1, sizeof *w);
    insist(w != NULL, "no memory for the harness");
    w->plan = *plan;
    for (int i = 0; i < OUTS; i++) w->out[i].width = WIDTH[i];
    for (int i = 0; i < SETS; i++) w->set[i].keys.width = sizeof(struct pair);
    for (uint64_t i = 0; i < plan->n_ids; i++)
        insist(sexton_place(&w->set[IDS], plan->ids[i], 0, 1) == (int64_t)i, "ids are not distinct");
    return w;
}

static void ended(struct walk *w) {
    for (int i = 0; i < OUTS; i++) free(w->out[i].at);
    for (int i = 0; i < SETS; i++) free(w->set[i].keys.at), free(w->set[i].slot);
    free(w);
}

/* Walks the stream in pieces of at most `piece`; where and how it stopped is in `in`. */
static int64_t walked(struct walk *w, struct stream *in, const uint8_t *data, uint64_t size, uint64_t piece) {
    int64_t got = 0;
    uint64_t at = 0, want = piece;
    for (;;) {
        uint64_t part = size - at < want ? size - at : want;
        uint8_t *copy = exactly(data + at, part);
        *in = (struct stream){copy, part, 0, in->bad};
        got = sexton_samples(w, in);
        free(copy);
        insist(in->at <= part, "more was consumed than there is");
        at += in->at;
        if (got || at + part - in->at == size) break;
        want = in->at ? piece : want * 2;
    }
    in->at = at;
    return got;
}

static void same(const struct walk *one, const struct walk *other) {
    for (int i = 0; i < OUTS + SETS; i++) {
        const struct column *a = i < OUTS ? one->out + i : &one->set[i - OUTS].keys;
        const struct column *b = i < OUTS ? other->out + i : &other->set[i - OUTS].keys;
        insist(a->used == b->used, "pieces give other counts");
        insist(!a->used || !memcmp(a->at, b->at, a->used * a->width), "pieces give other columns");
    }
}

static void below(const struct column *c, int64_t low, uint64_t high) {
    for (uint64_t i = 0; i < c->used; i++) {
        int64_t value = ((int32_t *)c->at)[i];
        insist(value >= low && (value < 0 || (uint64_t)value < high), "a number points nowhere");
    }
}

static void grown(const struct walk *w) {
    uint64_t n = w->out[STACK_COMM].used, deepest = 0, nodes;
    struct column out[3] = {{0, 0, 0, 4}, {0, 0, 0, 4}, {0, 0, 0, 4}};
    int64_t *start = calloc(n + 1, 8);
    int32_t *root = calloc(n + 1, 4), *leaf = calloc(n + 1, 4);
    insist(start && root && leaf, "no memory for the harness");
    for (uint64_t i = 0; i < n; i++) {
        start[i + 1] = ((int64_t *)w->out[STACK_START].at)[i];
        root[i] = ((int32_t *)w->out[STACK_COMM].at)[i] & 3;
        insist(start[i + 1] >= start[i], "a stack ends before it begins");
        uint64_t depth = (uint64_t)(start[i + 1] - start[i]);
        if (depth > deepest) deepest = depth;
    }
    insist((uint64_t)start[n] == w->out[STACK_FRAME].used, "stacks do not fit their frames");
    int32_t *frame = exactly(w->out[STACK_FRAME].at, w->out[STACK_FRAME].used * 4);
    int32_t *path = malloc((deepest + 2) * 4);
    struct item *items = malloc((n + 1) * sizeof *items);
    struct stacks in = {root, start, frame, n};
    insist(path && items, "no memory for the harness");
    if (!sexton_grow(&in, items, path, out, leaf)) {
        nodes = out[0].used;
        for (uint64_t i = 0; i < n; i++) {
            insist(leaf[i] > 0 && (uint64_t)leaf[i] < nodes, "a leaf is no node");
            int32_t depth = ((int32_t *)out[1].at)[leaf[i]];
            insist(depth == start[i + 1] - start[i] + 1, "a leaf is at another depth");
        }
        for (uint64_t i = 0; i < nodes; i++) {
            uint64_t end = (uint64_t)((int32_t *)out[2].at)[i];
            insist(end > i && end <= nodes, "a node ends nowhere");
        }
    } else insist(failing != 0, "no memory where there is some");
    for (int i = 0; i < 3; i++) free(out[i].at);
    free(start), free(root), free(leaf), free(frame), free(path), free(items);
}

static void tried(const struct example *e, const uint8_t *data, uint64_t size) {
    int64_t offsets[64], got;
    uint8_t *copy = exactly(data, size);
    struct stream side = {copy, size, 0, 0}, whole = {0}, parts = {0};
    while ((got = sexton_side(&side, offsets, 64)) > 0)
        for (int64_t i = 0; i < got; i++) insist((uint64_t)offsets[i] + 8 <= size, "no record is there");
    free(copy);
    struct walk *one = begun(&e->plan), *other = begun(&e->plan);
    failing = chance(4) ? 0 : 1 + chance(400);
    int64_t first = walked(one, &whole, data, size, size);
    if (!failing) {
        int64_t second = walked(other, &parts, data, size, 8 + chance(4096));
        insist(first == second && whole.at == parts.at && whole.bad == parts.bad, "pieces end elsewhere");
        insist(first == got && whole.at == side.at, "the passes end at different places");
        same(one, other);
        below(one->out + STACK, 0, one->out[STACK_COMM].used);
        below(one->out + STACK_FRAME, 0, one->set[FRAMES].keys.used);
        below(one->out + CGROUP, -1, one->set[CGROUPS].keys.used);
        failing = chance(4) ? 0 : 1 + chance(40);
        grown(one);
    } else insist(first == NO_MEMORY || first == got, "it failed otherwise");
    failing = 0;
    ended(one), ended(other);
}

int main(int argc, char **argv) {
    static struct example examples[CASES];
    int n = argc - 5;
    if (n < 1 || n > CASES) return 2;
    time_t until = time(NULL) + atoi(argv[1]);
    uint64_t least = strtoull(argv[2], NULL, 10);
    state = strtoull(argv[3], NULL, 10) | 1;
    FILE *last = fopen(argv[4], "w+b");
    insist(last && !fseek(last, LONGEST + 7, SEEK_SET) && fputc(0, last) == 0 && !fflush(last), argv[4]);
    uint8_t *kept = mmap(NULL, LONGEST + 8, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(last), 0);
    insist(kept != MAP_FAILED, argv[4]);
    for (int i = 0; i < n; i++) examples[i] = loaded(argv[5 + i]);
    uint64_t times = 0;
    for (; times < (uint64_t)n || times < least || time(NULL) < until; times++) {
        struct example *e = examples + (times < (uint64_t)n ? times : chance((uint64_t)n));
        uint64_t size = mutated(e, examples + chance((uint64_t)n), kept + 8);
        memcpy(kept, &size, 8);
        tried(e, kept + 8, size);
    }
    printf("%llu streams\n", (unsigned long long)times);
    return 0;
}
