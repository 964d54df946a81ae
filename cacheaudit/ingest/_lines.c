/* Takes the usual lines of a Claude Code transcript, one call for as many as follow one another.

   The content of a message is stepped over: what stands before and behind it is read as JSON of
   the strictest kind, so that both cuts lie in the same message. Consecutive lines of one response
   are put together. Any line that is in the least unusual ends the call and is left to the caller,
   which reads it the long way: this file never reports a fault and never guesses.

   Cost: one pass over the bytes for the line ends, about 1 KB a line looked at closely. Nothing is
   kept between calls. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_json.h"

/* How much of a line is searched for where it goes on behind its content, and how long its front
   may be, up to the message of a user line and up to the content of a response. The reader in
   Python has the same limits, since what lies between is not looked at. */
enum { TAIL = 1500, USER_FRONT = 600, FRONT = 1500, STAMP = 24, UNIQUE = 36 };

/* What the fields that matter are called, and what they may be. */
typedef enum {
    PARENT, SIDE, SESSION, AGENT, VERSION, REQUEST, TYPE, SUBTYPE, UUID, TIME, /* of a line */
    MODEL, ID, STOP, USAGE, DIAGNOSTICS, /* of its message */
    OUTPUT,                              /* of its usage */
    COST,                                /* left to the caller */
    FIELDS
} Field;

typedef struct {
    Piece name;
    Field field;
} Name;

static const Name LINE_NAMES[] = {
    {WORD("parentUuid"), PARENT}, {WORD("isSidechain"), SIDE}, {WORD("sessionId"), SESSION},
    {WORD("agentId"), AGENT}, {WORD("version"), VERSION}, {WORD("requestId"), REQUEST},
    {WORD("type"), TYPE}, {WORD("uuid"), UUID}, {WORD("timestamp"), TIME},
    {WORD("subtype"), SUBTYPE}, {WORD("costUSD"), COST}, {{NULL, 0}, FIELDS},
};
static const Name MESSAGE_NAMES[] = {
    {WORD("model"), MODEL}, {WORD("id"), ID}, {WORD("stop_reason"), STOP}, {WORD("usage"), USAGE},
    {WORD("diagnostics"), DIAGNOSTICS}, {{NULL, 0}, FIELDS},
};
static const Name USAGE_NAMES[] = {{WORD("output_tokens"), OUTPUT}, {{NULL, 0}, FIELDS}};
static const Piece MESSAGE = WORD("message"), CONTENT = WORD("content"), TOKENS = WORD("usage"),
                   COMPACTION = WORD("compact_boundary"), SYNTHETIC = WORD("<synthetic>"),
                   BY_USER = WORD("user"), ASSISTANT = WORD("assistant"), SYSTEM = WORD("system"),
                   BEHIND = WORD("],\"stop_reason\":"), FROM_USER = WORD("{\"role\":\"user\""),
                   PARENTED = WORD("{\"parentUuid\":\""), STAMPED = WORD("\"timestamp\":\""),
                   NAMED = WORD(",\"uuid\":\""), AGAIN = WORD("{\"parentUuid\":"),
                   NEVER = {NULL, 0};

typedef struct {
    Piece field[FIELDS];
    unsigned seen;
    int side;
    long long output;
} Line;

/* A response as far as its consecutive lines tell. */
typedef struct {
    Line line;       /* its first line, with the end of its last one */
    Piece first;     /* time of the first line */
    Piece user;      /* time of the user line before it, where there is one */
    Py_ssize_t low, high, number;
    int open;
} Run;

/* ---- A line ------------------------------------------------------------------------------- */

/* Reads a number that is a count. */
static int count(Piece text, long long *found)
{
    *found = 0;
    for (Py_ssize_t i = 0; i < text.size; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return 0;
        *found = *found * 10 + (text.at[i] - '0');
    }
    return 1;
}

/* Takes a field that matters; 0 where it stands there twice or is not what it should be. */
static int take_field(Line *line, const Name *names, Piece name, Kind kind, Piece found)
{
    while (names->name.at != NULL && !same(name, names->name))
        names++;
    if (names->name.at == NULL)
        return 1;
    unsigned bit = 1u << names->field;
    if (line->seen & bit || names->field == COST)
        return 0;
    line->seen |= bit;
    if (names->field == SIDE) {
        line->side = kind == YES;
        return kind == YES || kind == NO;
    }
    if (names->field == DIAGNOSTICS) {
        line->field[DIAGNOSTICS] = found;
        return 1;
    }
    if (names->field == USAGE) {
        line->field[USAGE] = found;
        return kind == OBJECT;
    }
    if (names->field == OUTPUT)
        return kind == NUMBER && count(found, &line->output);
    if (kind == NOTHING)
        return 1;
    if (kind != TEXT)
        return 0;
    line->field[names->field].at = found.at + 1;
    line->field[names->field].size = found.size - 2;
    return 1;
}

/* Where the end of a message begins, behind the list that its content is; NULL where that is not
   plain. */
static const byte *behind_content(const byte *content, const byte *end)
{
    if (end - content <= BEHIND.size || *content != '[')
        return NULL;
    const byte *low = end - content > TAIL ? end - TAIL : content, *p = end - BEHIND.size;
#ifdef __SSE2__
    const __m128i bracket = _mm_set1_epi8(']'), s = _mm_set1_epi8('s');
    for (; p - low >= 16; p -= 16) { /* 16 places at a time, from the end */
        __m128i first = _mm_loadu_si128((const __m128i *)(const void *)(p - 15));
        __m128i fourth = _mm_loadu_si128((const __m128i *)(const void *)(p - 12));
        __m128i both = _mm_and_si128(_mm_cmpeq_epi8(first, bracket), _mm_cmpeq_epi8(fourth, s));
        if (_mm_movemask_epi8(both) == 0)
            continue;
        for (const byte *q = p; q > p - 16; q--)
            if (word(q, end, BEHIND) != NULL)
                return q + 2;
    }
#endif
    for (; p > low; p--)
        if (word(p, end, BEHIND) != NULL)
            return p + 2;
    return NULL;
}

typedef enum { UNUSUAL, RESPONSE, USER, SIDE_USER, SIDE_OTHER, OTHER } Sort;

/* Reads the fields of an object from p on; returns what is behind it, or the value of `stop`. */
static const byte *fields(const byte *p, const byte *end, Line *line, const Name *names,
                          Piece stop, int *stopped)
{
    *stopped = 0;
    for (;;) {
        Piece name, found;
        Kind kind = OBJECT;
        p = key(p, end, &name);
        if (p == NULL || p >= end)
            return NULL;
        if (same(name, stop)) {
            *stopped = 1;
            return p;
        }
        found.at = p;
        if (names == MESSAGE_NAMES && *p == '{' && same(name, TOKENS))
            p = fields(p + 1, end, line, USAGE_NAMES, NEVER, stopped);
        else
            p = value(p, end, MAX_DEPTH, &kind);
        if (p == NULL || p >= end)
            return NULL;
        found.size = p - found.at;
        if (!take_field(line, names, name, kind, found))
            return NULL;
        if (*p == '}')
            return p + 1;
        if (*p++ != ',')
            return NULL;
    }
}

/* Reads the time at the very end of a user line, which the outermost object holds, and of a
   sidechain's line the id before it. */
static Sort read_user(const byte *p, const byte *end, Line *line)
{
    const ptrdiff_t stamped = STAMPED.size + STAMP + 2, named = NAMED.size + UNIQUE + 2;
    if (end - p < stamped + named)
        return UNUSUAL;
    const byte *at = word(end - stamped, end, STAMPED);
    Piece time = {end - STAMP - 2, STAMP}, uuid = {end - stamped - UNIQUE - 2, UNIQUE};
    if (at == NULL || !plain(time) || end[-2] != '"' || end[-1] != '}')
        return UNUSUAL;
    line->field[TIME] = time;
    if (!line->side)
        return USER;
    at = word(end - stamped - named, end, NAMED);
    if (at == NULL || !plain(uuid) || uuid.at[UNIQUE] != '"' || uuid.at[UNIQUE + 1] != ',' ||
        line->seen & 1u << UUID || !(line->seen & 1u << PARENT) || !same(line->field[TYPE], BY_USER))
        return UNUSUAL;
    line->field[UUID] = uuid;
    return SIDE_USER;
}

/* What the lines before began with behind the parent's id, which stands first in them. */
typedef struct {
    Piece user;          /* up to the role of a user line */
    Piece ahead, behind; /* of a response: up to the id of the message, and from it to the content */
    Line line;           /* what these say */
} Fronts;

/* Reads a line's front that is as the ones before; returns the content, for a user line the end. */
static const byte *known_front(const byte *p, const byte *end, const Fronts *fronts, Line *line)
{
    if (end - p <= PARENTED.size + UNIQUE || word(p, end, PARENTED) == NULL)
        return NULL;
    Piece parent = {p + PARENTED.size, UNIQUE}, id = fronts->line.field[ID];
    const byte *front = parent.at + UNIQUE;
    if (!plain(parent))
        return NULL;
    if (fronts->user.at != NULL && word(front, end, fronts->user) != NULL) {
        line->side = 0;
        return end;
    }
    if (fronts->ahead.at == NULL || (id.at = word(front, end, fronts->ahead)) == NULL)
        return NULL;
    if (end - id.at <= id.size || !plain(id))
        return NULL;
    const byte *content = word(id.at + id.size, end, fronts->behind);
    if (content == NULL || content == end)
        return NULL;
    *line = fronts->line;
    line->field[PARENT] = parent;
    line->field[ID] = id;
    return content;
}

/* Keeps what a line began with: of a user line up to its role, of a response up to its content. */
static void learn(Fronts *fronts, const byte *p, const byte *stop, const Line *line, int user)
{
    Piece parent = line->field[PARENT], id = line->field[ID];
    if (parent.at != p + PARENTED.size || parent.size != UNIQUE)
        return;
    const byte *front = parent.at + UNIQUE;
    if (user && !line->side) {
        fronts->user.at = front;
        fronts->user.size = stop - front;
    } else if (!user && id.at != NULL) {
        fronts->ahead.at = front;
        fronts->ahead.size = id.at - front;
        fronts->behind.at = id.at + id.size;
        fronts->behind.size = stop - fronts->behind.at;
        fronts->line = *line;
    }
}

/* Reads a line without a message: one of a sidechain tells which line its next one follows. */
static Sort read_other(const byte *p, const byte *end, Line *line)
{
    Piece type = line->field[TYPE], subtype = line->field[SUBTYPE];
    if (p != end || type.at == NULL || same(type, BY_USER) || same(type, ASSISTANT))
        return UNUSUAL;
    if (same(type, SYSTEM) && (subtype.at == NULL || same(subtype, COMPACTION)))
        return UNUSUAL;
    line->field[TIME].at = NULL;
    return line->side ? SIDE_OTHER : OTHER;
}

/* Reads what follows the content of a response. */
static Sort read_response(const byte *content, const byte *end, Line *line)
{
    int stopped;
    const byte *p = line->seen & 1u << USAGE ? NULL : behind_content(content, end);
    if (p != NULL)
        p = fields(p, end, line, MESSAGE_NAMES, NEVER, &stopped);
    if (p != NULL && p < end && *p == ',')
        p = fields(p + 1, end, line, LINE_NAMES, MESSAGE, &stopped);
    else if (p == NULL || p >= end || *p++ != '}')
        return UNUSUAL;
    if (p != end || !same(line->field[TYPE], ASSISTANT) || line->field[ID].at == NULL ||
        line->field[ID].size == 0 || !(line->seen & 1u << OUTPUT) ||
        line->field[TIME].at == NULL)
        return UNUSUAL;
    Piece model = line->field[MODEL];
    return model.at == NULL || same(model, SYNTHETIC) ? UNUSUAL : RESPONSE;
}

static Sort read_line(const byte *p, const byte *end, Line *line, Fronts *fronts)
{
    int stopped;
    const byte *first = p;
    p = known_front(first, end, fronts, line);
    if (p == end)
        return read_user(first, end, line);
    if (p != NULL)
        return read_response(p, end, line);
    memset(line, 0, sizeof *line);
    if (first >= end || *first != '{')
        return UNUSUAL;
    p = fields(first + 1, end, line, LINE_NAMES, MESSAGE, &stopped);
    if (p == NULL)
        return UNUSUAL;
    if (!stopped)
        return read_other(p, end, line);
    if (p - first > FRONT || memchr(first + 1, '{', (size_t)(p - first - 1)) != NULL)
        return UNUSUAL;
    const byte *role = word(p, end, FROM_USER);
    if (role != NULL) {
        if (p - first >= USER_FRONT || !(line->seen & 1u << SIDE))
            return UNUSUAL;
        learn(fronts, first, role, line, 1);
        return read_user(first, end, line);
    }
    if (p >= end || *p != '{')
        return UNUSUAL;
    p = fields(p + 1, end, line, MESSAGE_NAMES, CONTENT, &stopped);
    if (p == NULL || !stopped || p - first > FRONT)
        return UNUSUAL;
    learn(fronts, first, p, line, 0);
    return read_response(p, end, line);
}

/* ---- Runs of lines ------------------------------------------------------------------------ */

/* The last text that each field gave, since most lines repeat it. */
typedef struct {
    Piece piece[FIELDS];
    PyObject *text[FIELDS];
} Texts;

static PyObject *text_of(Piece piece)
{
    if (piece.at == NULL)
        return Py_NewRef(Py_None);
    return PyUnicode_DecodeASCII((const char *)piece.at, piece.size, NULL);
}

static PyObject *repeated(Texts *texts, Field field, Piece piece)
{
    if (texts->text[field] == NULL || !same(texts->piece[field], piece)) {
        Py_XDECREF(texts->text[field]);
        texts->text[field] = text_of(piece);
        texts->piece[field] = piece;
    }
    return Py_XNewRef(texts->text[field]);
}

static PyObject *bytes_of(Piece piece)
{
    if (piece.at == NULL)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)piece.at, piece.size);
}

/* Appends what a run has gathered; -1 with an exception where memory ran out. */
static int flush(PyObject *out, Run *run, Texts *texts)
{
    if (!run->open)
        return 0;
    run->open = 0;
    const Piece *field = run->line.field;
    PyObject *items[] = {
        PyLong_FromSsize_t(run->number),
        PyLong_FromSsize_t(run->low),
        PyLong_FromSsize_t(run->high),
        text_of(field[ID]),
        text_of(field[REQUEST]),
        repeated(texts, MODEL, field[MODEL]),
        repeated(texts, SESSION, field[SESSION]),
        repeated(texts, AGENT, field[AGENT]),
        repeated(texts, VERSION, field[VERSION]),
        PyBool_FromLong(run->line.side),
        run->line.side ? text_of(field[UUID]) : Py_NewRef(Py_None),
        run->line.side ? text_of(field[PARENT]) : Py_NewRef(Py_None),
        text_of(run->first),
        same(run->first, field[TIME]) ? NULL : text_of(field[TIME]),
        repeated(texts, STOP, field[STOP]),
        bytes_of(field[USAGE]),
        bytes_of(field[DIAGNOSTICS]),
        text_of(run->user),
    };
    enum { COUNT = sizeof items / sizeof *items, FIRST = 12, LAST = 13 };
    if (items[LAST] == NULL && same(run->first, field[TIME]))
        items[LAST] = Py_XNewRef(items[FIRST]);
    PyObject *tuple = PyTuple_New(COUNT);
    int bad = tuple == NULL;
    for (int i = 0; i < COUNT; i++) {
        bad = bad || items[i] == NULL;
        if (tuple == NULL || items[i] == NULL)
            Py_XDECREF(items[i]);
        else
            PyTuple_SetItem(tuple, i, items[i]);
    }
    bad = bad || PyList_Append(out, tuple) < 0;
    Py_XDECREF(tuple);
    return bad ? -1 : 0;
}

/* Adds a later line of the same response. */
static void join(Run *run, const Line *line)
{
    Piece *field = run->line.field;
    field[TIME] = line->field[TIME];
    if (line->field[STOP].at != NULL)
        field[STOP] = line->field[STOP];
    if (line->field[DIAGNOSTICS].at != NULL)
        field[DIAGNOSTICS] = line->field[DIAGNOSTICS];
    if (line->output > run->line.output) {
        run->line.output = line->output;
        field[USAGE] = line->field[USAGE];
    }
}

static int continues(const Run *run, const Line *line)
{
    return run->open && !run->line.side && !line->side &&
           same(run->line.field[ID], line->field[ID]) &&
           same(run->line.field[REQUEST], line->field[REQUEST]);
}

/* Takes lines from *start on; 0 with *start behind the last one taken, -1 with an exception. */
static int take_lines(const byte *data, Py_ssize_t *start, Py_ssize_t size, Py_ssize_t *number,
                      PyObject *out, Piece *user)
{
    Run run = {0};
    Texts texts = {0};
    Fronts fronts = {0};
    Line line = {0};
    int failed = 0;
    while (*start < size && !failed) {
        const byte *low = data + *start;
        const byte *end = memchr(low, '\n', (size_t)(size - *start));
        Py_ssize_t next = end == NULL ? size : end - data + 1;
        end = end == NULL ? data + size : end;
        /* A line that was cut off and then written on begins again in its middle. */
        int again = low < end && holds(low + 1, end, AGAIN, 7);
        Sort sort = again ? UNUSUAL : read_line(low, end, &line, &fronts);
        if (sort == UNUSUAL)
            break;
        ++*number;
        if (sort == USER) {
            *user = line.field[TIME];
        } else if (sort == RESPONSE && continues(&run, &line)) {
            join(&run, &line);
            run.high = next;
        } else if (sort != OTHER) {
            failed = flush(out, &run, &texts);
            run = (Run){line, line.field[TIME], {NULL, 0}, *start, next, *number, 1};
            if (sort == RESPONSE) {
                run.user = *user;
                user->at = NULL;
            }
        }
        *start = next;
    }
    failed = failed || flush(out, &run, &texts);
    for (int i = 0; i < FIELDS; i++)
        Py_XDECREF(texts.text[i]);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(take_doc,
"take(data, start, size, number, /)\n--\n\n"
"Take the usual lines in ``data[start:size]``; ``number`` lines stand before them.\n\n"
"Returns where the first other line begins, the number of the line before it, one tuple a\n"
"response, and the time of a user line that no response followed.");

static PyObject *take(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, size, number;
    Piece user = {NULL, 0};
    if (!PyArg_ParseTuple(args, "y*nnn", &view, &start, &size, &number))
        return NULL;
    PyObject *result = NULL, *out = NULL;
    if (start < 0 || size > view.len)
        PyErr_SetString(PyExc_ValueError, "start and size must lie within data");
    else if ((out = PyList_New(0)) != NULL &&
             take_lines(view.buf, &start, size, &number, out, &user) == 0)
        result = Py_BuildValue("nnON", start, number, out, text_of(user));
    Py_XDECREF(out);
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef METHODS[] = {
    {"take", take, METH_VARARGS, take_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cacheaudit.ingest._lines",
    .m_doc = "The usual lines of a Claude Code transcript, compiled.",
    .m_size = 0,
    .m_methods = METHODS,
};

PyMODINIT_FUNC PyInit__lines(void)
{
    return PyModuleDef_Init(&MODULE);
}
