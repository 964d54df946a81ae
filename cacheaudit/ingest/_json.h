/* Steps over JSON of the strictest kind: no blanks, no escape in a key, UTF-8 that is sound, plain
   numbers of at most 15 digits, 32 levels. NULL where it is not that. */

#ifndef CACHEAUDIT_JSON_H
#define CACHEAUDIT_JSON_H

#include <stddef.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

typedef unsigned char byte;

/* A piece of the buffer; `at` is NULL where there is none. */
typedef struct {
    const byte *at;
    ptrdiff_t size;
} Piece;

typedef enum { BAD, TEXT, ODD_TEXT, NUMBER, YES, NO, NOTHING, OBJECT, LIST } Kind;

enum { MAX_DEPTH = 32, DIGITS = 15 };

#define WORD(text) {(const byte *)(text), sizeof(text) - 1}

static const Piece TRUTH = WORD("true"), LIE = WORD("false"), NIL = WORD("null");

static int same(Piece a, Piece b)
{
    if (a.at == NULL || b.at == NULL)
        return a.at == b.at;
    return a.size == b.size && memcmp(a.at, b.at, (size_t)a.size) == 0;
}

static int hex4(const byte *p)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int c = p[i], digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            digit = (c | 32) - 'a' + 10;
        else
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Bytes of the UTF-8 character at p; 0 where it is none. */
static int utf8(const byte *p, const byte *end)
{
    int c = p[0], size = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (c < 0xC2 || c > 0xF4 || end - p < size)
        return 0;
    for (int i = 1; i < size; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F) || (c == 0xF0 && p[1] < 0x90) ||
        (c == 0xF4 && p[1] > 0x8F))
        return 0;
    return size;
}

/* Steps over 16 bytes at a time in which a string neither ends nor holds anything but ASCII. */
static const byte *ordinary(const byte *p, const byte *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'),
                  space = _mm_set1_epi8(' ');
    for (; end - p >= 16; p += 16) {
        __m128i some = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i odd = _mm_or_si128(_mm_cmplt_epi8(some, space), /* bytes over 0x7F are negative */
                                   _mm_or_si128(_mm_cmpeq_epi8(some, quote),
                                                _mm_cmpeq_epi8(some, slash)));
        int mask = _mm_movemask_epi8(odd);
        if (mask != 0)
            return p + __builtin_ctz((unsigned)mask);
    }
#else
    (void)end;
#endif
    return p;
}

/* Whether a string holds nothing but ASCII and no escape. */
static int plain(Piece piece)
{
    const byte *end = piece.at + piece.size, *p = ordinary(piece.at, end);
    while (p < end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\')
        p++;
    return p == end;
}

/* Steps over a string whose opening quote is behind p; says whether it is plain ASCII. */
static const byte *string(const byte *p, const byte *end, Kind *kind)
{
    *kind = TEXT;
    while ((p = ordinary(p, end)) < end) {
        int c = *p;
        if (c == '"')
            return p + 1;
        if (c < 0x20)
            return NULL;
        if (c == '\\') {
            *kind = ODD_TEXT;
            if (end - p < 2)
                return NULL;
            if (p[1] == 'u') {
                int code = end - p < 6 ? -1 : hex4(p + 2);
                if (code < 0 || (code >= 0xD800 && code < 0xE000))
                    return NULL;
                p += 6;
            } else if (strchr("\"\\/bfnrt", p[1]) != NULL && p[1] != 0) {
                p += 2;
            } else {
                return NULL;
            }
        } else if (c >= 0x80) {
            int size = utf8(p, end);
            if (size == 0)
                return NULL;
            *kind = ODD_TEXT;
            p += size;
        } else {
            p++;
        }
    }
    return NULL;
}

static const byte *digits(const byte *p, const byte *end)
{
    const byte *first = p;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p == first || p - first > DIGITS ? NULL : p;
}

/* Steps over a number of at most 15 digits before and behind the point, without exponent. */
static const byte *number(const byte *p, const byte *end)
{
    if (p < end && *p == '-')
        p++;
    const byte *first = p;
    p = digits(p, end);
    if (p == NULL || (*first == '0' && p - first > 1))
        return NULL;
    if (p < end && *p == '.')
        p = digits(p + 1, end);
    if (p == NULL || p >= end || (*p | 32) == 'e' || (*p >= '0' && *p <= '9'))
        return NULL;
    return p;
}

static const byte *word(const byte *p, const byte *end, Piece text)
{
    if (end - p < text.size || memcmp(p, text.at, (size_t)text.size) != 0)
        return NULL;
    return p + text.size;
}

/* Whether `text` stands between p and end; it is looked for by its two bytes from `mark` on, which
   should be rare. */
static int holds(const byte *p, const byte *end, Piece text, ptrdiff_t mark)
{
    if (end - p < text.size)
        return 0;
    p += mark;
#ifdef __SSE2__
    const __m128i one = _mm_set1_epi8((char)text.at[mark]),
                  two = _mm_set1_epi8((char)text.at[mark + 1]);
    for (; end - p > 16; p += 16) {
        __m128i first = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i second = _mm_loadu_si128((const __m128i *)(const void *)(p + 1));
        __m128i both = _mm_and_si128(_mm_cmpeq_epi8(first, one), _mm_cmpeq_epi8(second, two));
        for (int mask = _mm_movemask_epi8(both); mask != 0; mask &= mask - 1)
            if (word(p + __builtin_ctz((unsigned)mask) - mark, end, text) != NULL)
                return 1;
    }
#endif
    for (; end - p >= text.size - mark; p++)
        if (word(p - mark, end, text) != NULL)
            return 1;
    return 0;
}

/* Steps over `"key":` at p; the key holds no escape. */
static const byte *key(const byte *p, const byte *end, Piece *name)
{
    Kind kind;
    if (p >= end || *p != '"')
        return NULL;
    const byte *stop = string(p + 1, end, &kind);
    if (stop == NULL || kind != TEXT || stop >= end || *stop != ':')
        return NULL;
    name->at = p + 1;
    name->size = stop - p - 2;
    return stop + 1;
}

static const byte *value(const byte *p, const byte *end, int depth, Kind *kind);

/* Steps over an object or a list whose opening bracket is behind p. */
static const byte *inside(const byte *p, const byte *end, int depth, int close)
{
    Piece name;
    Kind kind;
    if (depth <= 0 || p >= end)
        return NULL;
    if (*p == close)
        return p + 1;
    for (;;) {
        if (close == '}' && (p = key(p, end, &name)) == NULL)
            return NULL;
        p = value(p, end, depth - 1, &kind);
        if (p == NULL || p >= end)
            return NULL;
        if (*p == close)
            return p + 1;
        if (*p++ != ',')
            return NULL;
    }
}

static const byte *value(const byte *p, const byte *end, int depth, Kind *kind)
{
    if (p >= end)
        return NULL;
    switch (*p) {
    case '"': return string(p + 1, end, kind);
    case '{': *kind = OBJECT; return inside(p + 1, end, depth, '}');
    case '[': *kind = LIST; return inside(p + 1, end, depth, ']');
    case 't': *kind = YES; return word(p, end, TRUTH);
    case 'f': *kind = NO; return word(p, end, LIE);
    case 'n': *kind = NOTHING; return word(p, end, NIL);
    default: *kind = NUMBER; return number(p, end);
    }
}

#endif
