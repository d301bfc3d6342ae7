typedef unsigned long size_t;
typedef struct file file_t;

extern int getchar(void);
extern int printf(const char *format, ...);
extern void *malloc(size_t size);
extern void free(void *memory);

enum { N_BUCKETS = 1 << 10, LONGEST = 64 };

struct word {
    char text[LONGEST];
    unsigned count;
    struct word *next;
};

static struct word *buckets[N_BUCKETS];
static const double share = 0.5e-3;

static unsigned hash(const char *text)
{
    unsigned value = 2166136261u;

    while (*text)
        value = (value ^ (unsigned char)*text++) * 16777619u;
    return value % N_BUCKETS;
}

static int same(const char *a, const char *b)
{
    for (; *a == *b; a++, b++)
        if (*a == '\0')
            return 1;
    return 0;
}

static struct word *find(const char *text, size_t length)
{
    struct word **place = &buckets[hash(text)], *found;
    size_t i;

    for (found = *place; found != 0; found = found->next) {
        if (same(found->text, text))
            return found;
    }
    found = (struct word *)malloc(sizeof(struct word));
    if (!found)
        return 0;
    for (i = 0; i <= length; ++i)
        found->text[i] = text[i];
    found->count = 0;
    found->next = *place;
    *place = found;
    return found;
}

static int is_letter(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\'' || c == '_';
}

static int compare(const struct word *a, const struct word *b)
{
    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    return a->text[0] - b->text[0];
}

static void sort(struct word **words, int n, int (*order)(const struct word *, const struct word *))
{
    int i, j;

    for (i = 1; i < n; i++) {
        struct word *moved = words[i];

        for (j = i - 1; j >= 0 && order(words[j], moved) > 0; j--)
            words[j + 1] = words[j];
        words[j + 1] = moved;
    }
}

int main(int argc, char **argv)
{
    char text[LONGEST];
    struct word *all[4096], *w;
    int c, n = 0, i;
    size_t length = 0;
    unsigned long total = 0x0;

    do {
        c = getchar();
        if (is_letter(c) && length + 1 < sizeof text) {
            text[length++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
            continue;
        }
        if (length > 0) {
            text[length] = 0;
            if ((w = find(text, length)) == 0)
                goto full;
            if (w->count++ == 0 && n < (int)(sizeof all / sizeof *all))
                all[n++] = w;
            total += 1;
        }
        length = 0;
    } while (c != -1);

    sort(all, n, compare);
    for (i = 0; i < n && i < 20; i++) {
        switch (all[i]->count) {
        case 1:
            break;
        default:
            printf("%-20s %6u  %.2f%%\n", all[i]->text, all[i]->count, 100.0 * all[i]->count / total);
        }
    }
    while (n-- > 0)
        free(all[n]);
    return argc > 1 && argv[1][0] == '-' ? total * share < 1. : 0;

full:
    printf("no memory for \"%s\": " "%lu words\n", text, total);
    return ~0 & 0x7f;
}
