/* Finds Lumberjack's frames, Pomelo's messages, and RS.io's and Pravega's events, and checks and
 * gathers what is in them; and receives from many sockets in one call, and sends to them.
 *
 * All of it is a quick way to an answer that the gateway's Python gives as well: `run`, `walk`,
 * `scan` and `sums` have the same answer always, `rows`, `pieces` and `messages` have one only for
 * what is beyond doubt.  What they do not know to be sound is no flaw: it is Python's to say what
 * that is.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#if defined(__SSE2__) && !defined(PORTABLE)
#include <emmintrin.h>
#endif

/* Of what both sides have agreed on: what is called, and what comes of it. */
#define INTERFACE 6

typedef const unsigned char *Bytes;

enum {
    HEAD = 10,
    /* Events of one run, at most. */
    RUN = 8192,
    /* Whoever has more than so many bytes checked lets other threads run meanwhile. */
    LET_GO = 1 << 14,
    /* Of objects and arrays in one another, as in `gateway/sdk/payload.py`. */
    DEPTH = 500,
    /* Sockets of one call, at most. */
    SOCKETS = 256,
    /* In place of a size: there is nothing to receive by now. */
    NOTHING = -2,
};

static inline uint32_t u32(Bytes at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* --- JSON ------------------------------------------------------------------------- */

/* Where a character of more than one byte ends that is UTF-8 (RFC 3629); NULL if none. */
static Bytes wide(Bytes p, Bytes end) {
    unsigned char first = *p, low = 0x80, high = 0xBF;
    int more;
    if (first >= 0xC2 && first <= 0xDF) {
        more = 1;
    } else if (first >= 0xE0 && first <= 0xEF) {
        more = 2;
        if (first == 0xE0) low = 0xA0;
        if (first == 0xED) high = 0x9F; /* surrogates */
    } else if (first >= 0xF0 && first <= 0xF4) {
        more = 3;
        if (first == 0xF0) low = 0x90;
        if (first == 0xF4) high = 0x8F;
    } else {
        return NULL;
    }
    if (end - p <= more || p[1] < low || p[1] > high) return NULL;
    for (int i = 2; i <= more; i++) {
        if ((p[i] & 0xC0) != 0x80) return NULL;
    }
    return p + more + 1;
}

/* The first byte from p on that is no plain one of a string: a quote, a backslash, a
 * control character, or no ASCII; somewhere before `bound` anything may be read. */
static inline Bytes plain(Bytes p, Bytes end, Bytes bound) {
#if defined(__SSE2__) && !defined(PORTABLE)
    const __m128i quote = _mm_set1_epi8('"'), back = _mm_set1_epi8('\\');
    const __m128i space = _mm_set1_epi8(' ');
    while (bound - p >= 16) {
        __m128i some = _mm_loadu_si128((const __m128i *)p);
        /* As signed numbers, what is no ASCII is less than a space, too. */
        __m128i odd = _mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(some, quote), _mm_cmpeq_epi8(some, back)),
            _mm_cmplt_epi8(some, space));
        int found = _mm_movemask_epi8(odd);
        if (found) return p + __builtin_ctz((unsigned)found);
        p += 16;
    }
#else
    const uint64_t ones = 0x0101010101010101u, tops = ones << 7;
    (void)bound;
    while (end - p >= 8) {
        uint64_t some, quote, back;
        memcpy(&some, p, 8);
        quote = some ^ ones * '"';
        back = some ^ ones * '\\';
        if (((quote - ones) | (back - ones) | (some - ones * ' ') | some) & tops) break;
        p += 8;
    }
#endif
    while (p < end && *p >= ' ' && *p < 0x80 && *p != '"' && *p != '\\') p++;
    return p;
}

/* The number of four hexadecimal digits; -1 if they are none. */
static int hex4(Bytes p, Bytes end) {
    int value = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        unsigned char c = p[i];
        if (c >= '0' && c <= '9') {
            value = value << 4 | (c - '0');
        } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
            value = value << 4 | ((c | 0x20) - 'a' + 10);
        } else {
            return -1;
        }
    }
    return value;
}

/* Behind an escape whose backslash is at p; NULL if it is none. */
static Bytes escaped(Bytes p, Bytes end) {
    int unit;
    if (end - p < 2) return NULL;
    switch (p[1]) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        return p + 2;
    case 'u':
        break;
    default:
        return NULL;
    }
    unit = hex4(p + 2, end);
    if (unit < 0 || (unit & 0xFC00) == 0xDC00) return NULL;
    if ((unit & 0xFC00) != 0xD800) return p + 6;
    if (end - p < 12 || p[6] != '\\' || p[7] != 'u') return NULL;
    unit = hex4(p + 8, end);
    return unit >= 0 && (unit & 0xFC00) == 0xDC00 ? p + 12 : NULL;
}

/* Behind the string whose quote is before p; NULL if it is none. */
static inline Bytes string(Bytes p, Bytes end, Bytes bound) {
    for (;;) {
        p = plain(p, end, bound);
        if (p >= end) return NULL;
        if (*p == '"') return p + 1;
        if (*p == '\\') {
            p = escaped(p, end);
        } else if (*p >= 0x80) {
            do {
                p = wide(p, end);
            } while (p && p < end && *p >= 0x80);
        } else {
            return NULL;
        }
        if (!p) return NULL;
    }
}

static inline Bytes digits(Bytes p, Bytes end) {
    while (p < end && (unsigned)(*p - '0') < 10) p++;
    return p;
}

/* Behind a number; NULL if it is none. */
static inline Bytes number(Bytes p, Bytes end) {
    Bytes from;
    if (*p == '-') p++;
    from = p;
    p = digits(p, end);
    if (p == from || (*from == '0' && p - from > 1)) return NULL;
    if (p < end && *p == '.') {
        from = p + 1;
        p = digits(from, end);
        if (p == from) return NULL;
    }
    if (p < end && (*p | 0x20) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        from = p;
        p = digits(from, end);
        if (p == from) return NULL;
    }
    return p;
}

static inline Bytes spaces(Bytes p, Bytes end) {
    while (p < end && *p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    return p;
}

/* Whether all up to the end is one JSON object in UTF-8, no deeper than DEPTH. */
static int sound(Bytes p, Bytes end, Bytes bound) {
    unsigned char ends[DEPTH + 1]; /* what closes each that is open */
    int depth = 0;

/* The next byte that is no space; there is one. */
#define NEXT                                        \
    if (p < end && *p <= ' ') p = spaces(p, end);   \
    if (p >= end) return 0

    if (p >= end || *p != '{') return 0;
value:
    NEXT;
    switch (*p) {
    case '{':
        if (depth++ == DEPTH) return 0;
        ends[depth] = '}';
        p++;
        NEXT;
        if (*p == '}') goto close;
        goto key;
    case '[':
        if (depth++ == DEPTH) return 0;
        ends[depth] = ']';
        p++;
        NEXT;
        if (*p == ']') goto close;
        goto value;
    case '"':
        p = string(p + 1, end, bound);
        break;
    case 't':
        p = end - p >= 4 && !memcmp(p, "true", 4) ? p + 4 : NULL;
        break;
    case 'f':
        p = end - p >= 5 && !memcmp(p, "false", 5) ? p + 5 : NULL;
        break;
    case 'n':
        p = end - p >= 4 && !memcmp(p, "null", 4) ? p + 4 : NULL;
        break;
    default:
        p = number(p, end);
    }
    if (!p) return 0;
after:
    NEXT;
    if (*p == ',') {
        p++;
        if (ends[depth] == ']') goto value;
        NEXT;
        goto key;
    }
    if (*p != ends[depth]) return 0;
close:
    p++;
    if (--depth) goto after;
    return spaces(p, end) == end;
key:
    if (*p != '"') return 0;
    p = string(p + 1, end, bound);
    if (!p) return 0;
    NEXT;
    if (*p != ':') return 0;
    p++;
    goto value;
#undef NEXT
}

/* --- frames ------------------------------------------------------------------------ */

/* Of adjacent `J` frames whose bodies begin with a brace. */
typedef struct {
    Py_ssize_t count, stop;
    uint32_t seq, not_zero, largest;
    uint16_t sizes[RUN];
} Run;

static void find(Bytes from, Py_ssize_t size, Py_ssize_t at, int version, Py_ssize_t most, Run *run) {
    run->count = 0;
    run->seq = run->not_zero = run->largest = 0;
    while (run->count < most && size - at > HEAD) {
        Bytes head = from + at;
        uint32_t body = u32(head + 6);
        if (head[HEAD] != '{' || head[0] != version || head[1] != 'J') break;
        if ((uint64_t)(size - at - HEAD) < body) break;
        run->seq = u32(head + 2);
        if (run->seq) run->not_zero = run->seq;
        if (body > run->largest) run->largest = body;
        run->sizes[run->count++] = (uint16_t)body;
        at += HEAD + (Py_ssize_t)body;
    }
    run->stop = at;
}

/* Copies the bodies, and says where each ends, and its number; 0 if one is perhaps flawed. */
static int gather(Bytes p, Bytes bound, Bytes sizes, Py_ssize_t count, char *block, char *ends,
                  char *seqs) {
    int64_t end = 0, seq;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t size = sizes[2 * i] | (uint32_t)sizes[2 * i + 1] << 8;
        if ((p[0] != '1' && p[0] != '2') || p[1] != 'J' || u32(p + 6) != size) return 0;
        seq = u32(p + 2);
        memcpy(seqs + 8 * i, &seq, 8);
        p += HEAD;
        if (!sound(p, p + size, bound)) return 0;
        memcpy(block + end, p, size);
        end += size;
        memcpy(ends + 8 * i, &end, 8);
        p += size;
    }
    return 1;
}

/* --- pieces: what has the same bytes before each, and its size --------------------- */

typedef struct {
    Bytes head;
    Py_ssize_t head_size;
    int wide; /* The size is a u32, or else a varint. */
    uint64_t largest;
} Pieces;

/* Behind a varint; NULL if it has not all arrived, or is none of 64 bits. */
static inline Bytes varint(Bytes p, Bytes end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64 && p < end; shift += 7) {
        uint64_t octet = *p++;
        if (shift == 63 && octet > 1) return NULL;
        *value |= (octet & 0x7F) << shift;
        if (octet < 0x80) return p;
    }
    return NULL;
}

/* Where the octets of the piece at p begin, *size of them; NULL if it is none, or too large,
 * or has not all arrived. */
static inline Bytes piece(const Pieces *of, Bytes p, Bytes end, uint64_t *size) {
    if (end - p < of->head_size || memcmp(p, of->head, of->head_size)) return NULL;
    p += of->head_size;
    if (of->wide) {
        if (end - p < 4) return NULL;
        *size = u32(p);
        p += 4;
    } else if (!(p = varint(p, end, size))) {
        return NULL;
    }
    return *size > of->largest || *size > (uint64_t)(end - p) ? NULL : p;
}

/* How many there are, *most* at most, their octets, and where they end. */
static Py_ssize_t count_pieces(const Pieces *of, Bytes *at, Bytes end, Py_ssize_t most,
                               Py_ssize_t *octets) {
    Py_ssize_t count = 0;
    uint64_t size;
    Bytes p;
    *octets = 0;
    while (count < most && (p = piece(of, *at, end, &size))) {
        *at = p + size;
        *octets += (Py_ssize_t)size;
        count++;
    }
    return count;
}

/* Copies them, and says where each ends; 0 if one is perhaps no sound JSON, where it is to be. */
static int copy_pieces(const Pieces *of, Bytes p, Bytes end, Py_ssize_t count, int json, char *block,
                       char *ends) {
    int64_t to = 0;
    uint64_t size;
    for (Py_ssize_t i = 0; i < count; i++) {
        p = piece(of, p, end, &size);
        if (!p || (json && !sound(p, p + size, end))) return 0;
        memcpy(block + to, p, size);
        to += (int64_t)size;
        memcpy(ends + 8 * i, &to, 8);
        p += size;
    }
    return 1;
}

/* --- Pomelo's messages -------------------------------------------------------------- */

typedef struct {
    uint64_t number;
    int route; /* A code, or -1: it is a name. */
    Bytes name, body, stop;
} Message;

/* Behind an id; NULL if it is none. */
static Bytes number_at(Bytes p, Bytes stop, uint64_t *number) {
    uint64_t low = 0, high = 0, most = 0xFFFFFFFFu;
    int marked = p < stop && (*p & 0x7F);
    for (int shift = 0; shift < 35; shift += 7) {
        uint64_t octet;
        if (p == stop) return NULL;
        octet = *p++;
        low |= (octet & 0x7F) << shift;
        high = high << 7 | (octet & 0x7F);
        if (octet & 0x80) continue;
        marked = marked && !octet && high <= most;
        if (marked) low = high;
        *number = low + (marked ? most + 1 : 0);
        return low > most ? NULL : p;
    }
    return NULL;
}

/* The plain request or notify at p, if there is one before the end; 0 if not. */
static int plain_message(Bytes p, Bytes end, Py_ssize_t most, Message *found) {
    Py_ssize_t size;
    unsigned char flag;
    if (end - p < 5 || p[0] != 4) return 0;
    size = (Py_ssize_t)(u32(p) & 0xFFFFFF);
    if (!size || size > most || size > end - p - 4) return 0;
    flag = p[4];
    found->stop = p + 4 + size;
    p += 5;
    found->number = 0;
    if (flag < 2) {
        if (!(p = number_at(p, found->stop, &found->number))) return 0;
    } else if (flag > 3) {
        return 0;
    }
    if (found->stop - p < 1) return 0;
    if (flag & 1) {
        if (found->stop - p < 2) return 0;
        found->route = p[0] << 8 | p[1];
        found->body = p + 2;
        return 1;
    }
    found->route = -1;
    found->name = p + 1;
    if (*p > found->stop - found->name) return 0;
    found->body = found->name + *p;
    return 1;
}

static int same_route(const Message *one, const Message *other) {
    Py_ssize_t size;
    if (one->route != other->route) return 0;
    if (one->route >= 0) return 1;
    size = one->body - one->name;
    return size == other->body - other->name && !memcmp(one->name, other->name, (size_t)size);
}

/* Copies the bodies of so many, and says where each ends, its number, and where it ends itself;
 * 0 if one is perhaps flawed. */
static int copy_bodies(Bytes from, Bytes p, Bytes end, Py_ssize_t count, char *block, char *ends,
                       char *seqs, char *stops) {
    int64_t to = 0, seq, stop;
    Message found;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!plain_message(p, end, end - p, &found) || !sound(found.body, found.stop, end)) return 0;
        memcpy(block + to, found.body, (size_t)(found.stop - found.body));
        to += found.stop - found.body;
        seq = (int64_t)(found.number & 0xFFFFFFFFu);
        stop = found.stop - from;
        memcpy(ends + 8 * i, &to, 8);
        memcpy(seqs + 8 * i, &seq, 8);
        memcpy(stops + 8 * i, &stop, 8);
        p = found.stop;
    }
    return 1;
}

/* --- Python ------------------------------------------------------------------------ */

PyDoc_STRVAR(run_doc, "run(buffer, at, version, most, /)\n--\n\n"
"Of the adjacent J frames from *at* on, *most* of them, that have all arrived and whose\n"
"bodies begin with a brace: how many these are, where they end, the last number, the last\n"
"that is not 0, the largest body, and all bodies' sizes, each a u16, or None.");

static PyObject *py_run(PyObject *self, PyObject *args) {
    Py_buffer buffer;
    Py_ssize_t at, most;
    int version;
    Run run;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nin", &buffer, &at, &version, &most)) return NULL;
    if (at < 0 || at > buffer.len) {
        PyBuffer_Release(&buffer);
        PyErr_SetString(PyExc_ValueError, "no place in the buffer");
        return NULL;
    }
    find(buffer.buf, buffer.len, at, version, most < RUN ? most : RUN, &run);
    PyBuffer_Release(&buffer);
#if PY_BIG_ENDIAN
    for (Py_ssize_t i = 0; i < run.count; i++) run.sizes[i] = (uint16_t)(run.sizes[i] << 8 | run.sizes[i] >> 8);
#endif
    /* None with a length of its own: what does not fit was cut off. */
    return Py_BuildValue("nnIIIy#", run.count, run.stop, run.seq, run.not_zero, run.largest,
                         run.largest >> 16 ? NULL : (const char *)run.sizes, 2 * run.count);
}

PyDoc_STRVAR(rows_doc, "rows(frames, sizes, /)\n--\n\n"
"Of J frames whose bodies have these sizes, each a u16: the bodies in one piece, where each\n"
"ends in it, and their numbers, these as int64 of this machine.  None if one is perhaps no\n"
"sound JSON object, or the frames are others.");

static PyObject *py_rows(PyObject *self, PyObject *args) {
    Py_buffer frames, sizes;
    PyObject *block = NULL, *ends = NULL, *seqs = NULL, *found = NULL;
    Py_ssize_t count, total = 0;
    int good;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*", &frames, &sizes)) return NULL;
    count = sizes.len / 2;
    for (Py_ssize_t i = 0; i < count; i++) {
        Bytes size = (Bytes)sizes.buf + 2 * i;
        total += size[0] | size[1] << 8;
    }
    if (frames.len != total + HEAD * count) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    block = PyBytes_FromStringAndSize(NULL, total);
    ends = PyBytes_FromStringAndSize(NULL, 8 * count);
    seqs = PyBytes_FromStringAndSize(NULL, 8 * count);
    if (!block || !ends || !seqs) goto done;
    {
        char *to = PyBytes_AsString(block);
        char *to_ends = PyBytes_AsString(ends), *to_seqs = PyBytes_AsString(seqs);
        Bytes from = frames.buf;
        PyThreadState *others = frames.len > LET_GO ? PyEval_SaveThread() : NULL;
        good = gather(from, from + frames.len, sizes.buf, count, to, to_ends, to_seqs);
        if (others) PyEval_RestoreThread(others);
    }
    found = good ? PyTuple_Pack(3, block, ends, seqs) : Py_NewRef(Py_None);
done:
    Py_XDECREF(block);
    Py_XDECREF(ends);
    Py_XDECREF(seqs);
    PyBuffer_Release(&frames);
    PyBuffer_Release(&sizes);
    return found;
}

PyDoc_STRVAR(walk_doc, "walk(buffer, at, head, wide, most, largest, /)\n--\n\n"
"Of the adjacent pieces from *at* on, *most* of them, that have all arrived and no more than\n"
"*largest* octets each: how many these are, their octets, and where they end.  Before each\n"
"is *head*, and then its size, a varint, or a u32 if *wide*.");

static PyObject *py_walk(PyObject *self, PyObject *args) {
    Py_buffer buffer, head;
    Py_ssize_t at, most, largest, count, octets;
    Pieces of;
    Bytes stop;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*ny*pnn", &buffer, &at, &head, &of.wide, &most, &largest)) return NULL;
    if (at < 0 || at > buffer.len || largest < 0) {
        PyBuffer_Release(&buffer);
        PyBuffer_Release(&head);
        PyErr_SetString(PyExc_ValueError, "no place in the buffer, or no size");
        return NULL;
    }
    of.head = head.buf;
    of.head_size = head.len;
    of.largest = (uint64_t)largest;
    stop = (Bytes)buffer.buf + at;
    count = count_pieces(&of, &stop, (Bytes)buffer.buf + buffer.len, most, &octets);
    at = stop - (Bytes)buffer.buf;
    PyBuffer_Release(&buffer);
    PyBuffer_Release(&head);
    return Py_BuildValue("nnn", count, octets, at);
}

PyDoc_STRVAR(pieces_doc, "pieces(body, at, head, wide, largest, json, /)\n--\n\n"
"Of all that is there from *at* on, which are pieces as of `walk`: they in one block, and\n"
"where each ends in it, as int64 of this machine.  None if there is anything else, or if,\n"
"with *json*, one is perhaps no sound JSON object.");

static PyObject *py_pieces(PyObject *self, PyObject *args) {
    Py_buffer body, head;
    Py_ssize_t at, largest, count, total = 0;
    PyObject *block = NULL, *ends = NULL, *found = NULL;
    Pieces of;
    Bytes from, stop, end;
    int json, good;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*ny*pnp", &body, &at, &head, &of.wide, &largest, &json)) return NULL;
    if (at < 0 || at > body.len || largest < 0) {
        PyErr_SetString(PyExc_ValueError, "no place in the body, or no size");
        goto done;
    }
    of.head = head.buf;
    of.head_size = head.len;
    of.largest = (uint64_t)largest;
    stop = from = (Bytes)body.buf + at;
    end = (Bytes)body.buf + body.len;
    count = count_pieces(&of, &stop, end, body.len, &total);
    if (stop != end) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    block = PyBytes_FromStringAndSize(NULL, total);
    ends = PyBytes_FromStringAndSize(NULL, 8 * count);
    if (!block || !ends) goto done;
    {
        char *to = PyBytes_AsString(block), *to_ends = PyBytes_AsString(ends);
        PyThreadState *others = total > LET_GO ? PyEval_SaveThread() : NULL;
        good = copy_pieces(&of, from, end, count, json, to, to_ends);
        if (others) PyEval_RestoreThread(others);
    }
    found = good ? PyTuple_Pack(2, block, ends) : Py_NewRef(Py_None);
done:
    Py_XDECREF(block);
    Py_XDECREF(ends);
    PyBuffer_Release(&body);
    PyBuffer_Release(&head);
    return found;
}

/* Appends it, if it is something. */
static int append(PyObject *list, PyObject *one) {
    int bad = !one || PyList_Append(list, one);
    Py_XDECREF(one);
    return bad;
}

static PyObject *route_of(const Message *of) {
    if (of->route >= 0) return PyLong_FromLong(of->route);
    return PyBytes_FromStringAndSize((const char *)of->name, of->body - of->name);
}

PyDoc_STRVAR(scan_doc, "scan(buffer, at, end, most, found, most_found, /)\n--\n\n"
"Append Pomelo's plain requests and notifies to the list *found*; see the gateway's\n"
"`protocols.pomelo.wire.scan`.");

static PyObject *py_scan(PyObject *self, PyObject *args) {
    Py_buffer buffer;
    Py_ssize_t at, end, most, most_found;
    PyObject *list, *route = NULL;
    Message found, last = {0};
    Bytes from;
    int bad;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nnnO!n", &buffer, &at, &end, &most, &PyList_Type, &list, &most_found)) {
        return NULL;
    }
    bad = at < 0 || end > buffer.len;
    if (bad) PyErr_SetString(PyExc_ValueError, "no place in the buffer");
    from = buffer.buf;
    for (; !bad && most_found > 0 && at < end; most_found--) {
        if (!plain_message(from + at, from + end, most, &found)) break;
        /* One route after the other is the same as a rule, and then one object. */
        if (!route || !same_route(&found, &last)) {
            Py_XDECREF(route);
            route = route_of(&found);
        }
        last = found;
        bad = append(list, route ? Py_BuildValue("KOnn", (unsigned long long)found.number, route, found.body - from,
                                                 found.stop - from) : NULL);
        at = found.stop - from;
    }
    Py_XDECREF(route);
    PyBuffer_Release(&buffer);
    return bad ? NULL : PyLong_FromSsize_t(at);
}

PyDoc_STRVAR(sums_doc, "sums(buffer, at, end, most, most_found, /)\n--\n\n"
"Of what `scan` finds: where it ends, how many messages these are, the octets of their bodies,\n"
"the ids of requests, and routes, each where the message before has another.");

static PyObject *py_sums(PyObject *self, PyObject *args) {
    Py_buffer buffer;
    Py_ssize_t at, end, most, most_found, count = 0, octets = 0;
    PyObject *ids, *routes, *answer = NULL;
    Message found, last = {0};
    Bytes from;
    int bad;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nnnn", &buffer, &at, &end, &most, &most_found)) return NULL;
    ids = PyList_New(0);
    routes = PyList_New(0);
    bad = !ids || !routes;
    if (!bad && (at < 0 || end > buffer.len)) {
        PyErr_SetString(PyExc_ValueError, "no place in the buffer");
        bad = 1;
    }
    from = buffer.buf;
    for (; !bad && count < most_found && at < end; count++) {
        if (!plain_message(from + at, from + end, most, &found)) break;
        if (!count || !same_route(&found, &last)) bad = append(routes, route_of(&found));
        if (!bad && found.number) bad = append(ids, PyLong_FromUnsignedLongLong(found.number));
        octets += found.stop - found.body;
        last = found;
        at = found.stop - from;
    }
    if (!bad) answer = Py_BuildValue("nnnOO", at, count, octets, ids, routes);
    Py_XDECREF(ids);
    Py_XDECREF(routes);
    PyBuffer_Release(&buffer);
    return answer;
}

PyDoc_STRVAR(messages_doc, "messages(buffer, at, least, /)\n--\n\n"
"Of all that is there from *at* on, which are messages that `scan` finds, *least* of them: their\n"
"bodies in one piece, where each ends in it, their numbers without what `scan` adds to them, and\n"
"where each message ends, these as int64 of this machine; and each row that is of another route\n"
"or kind than the one before, with whether it is a request, and its route.  None if there is\n"
"anything else, or if one is perhaps no sound JSON object.");

static PyObject *py_messages(PyObject *self, PyObject *args) {
    Py_buffer buffer;
    PyObject *block = NULL, *ends = NULL, *seqs = NULL, *stops = NULL, *changes, *answer = NULL, *route;
    Py_ssize_t at, least, count = 0, octets = 0;
    Message found, last = {0};
    Bytes p, end;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nn", &buffer, &at, &least)) return NULL;
    changes = PyList_New(0);
    if (!changes) goto done;
    if (at < 0 || at > buffer.len) {
        PyErr_SetString(PyExc_ValueError, "no place in the buffer");
        goto done;
    }
    p = (Bytes)buffer.buf + at;
    end = (Bytes)buffer.buf + buffer.len;
    for (; plain_message(p, end, end - p, &found); count++) {
        if (!count || !found.number != !last.number || !same_route(&found, &last)) {
            if (!(route = route_of(&found))) goto done;
            if (append(changes, Py_BuildValue("nON", count, found.number ? Py_True : Py_False, route))) goto done;
        }
        octets += found.stop - found.body;
        last = found;
        p = found.stop;
    }
    if (p != end || count < least) {
        answer = Py_NewRef(Py_None);
        goto done;
    }
    block = PyBytes_FromStringAndSize(NULL, octets);
    ends = PyBytes_FromStringAndSize(NULL, 8 * count);
    seqs = PyBytes_FromStringAndSize(NULL, 8 * count);
    stops = PyBytes_FromStringAndSize(NULL, 8 * count);
    if (!block || !ends || !seqs || !stops) goto done;
    {
        char *to = PyBytes_AsString(block), *to_ends = PyBytes_AsString(ends);
        char *to_seqs = PyBytes_AsString(seqs), *to_stops = PyBytes_AsString(stops);
        PyThreadState *others = octets > LET_GO ? PyEval_SaveThread() : NULL;
        int good = copy_bodies(buffer.buf, (Bytes)buffer.buf + at, end, count, to, to_ends, to_seqs, to_stops);
        if (others) PyEval_RestoreThread(others);
        answer = good ? PyTuple_Pack(5, block, ends, seqs, stops, changes) : Py_NewRef(Py_None);
    }
done:
    Py_XDECREF(block);
    Py_XDECREF(ends);
    Py_XDECREF(seqs);
    Py_XDECREF(stops);
    Py_XDECREF(changes);
    PyBuffer_Release(&buffer);
    return answer;
}

/* Descriptors of a list; how many, or -1. */
static Py_ssize_t descriptors_of(PyObject *list, int *into) {
    Py_ssize_t count = PyList_Size(list);
    if (count > SOCKETS) {
        PyErr_SetString(PyExc_ValueError, "too many sockets");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        long one = PyLong_AsLong(PyList_GetItem(list, i));
        if (one == -1 && PyErr_Occurred()) return -1;
        into[i] = (int)one;
    }
    return count;
}

PyDoc_STRVAR(receive_doc, "receive(sockets, most, /)\n--\n\n"
"What each of the sockets, which are descriptors and do not block, has by now: *most* bytes of\n"
"it, none if its peer has sent its end, None if there is nothing, False if there is an error, which\n"
"it says once.  Other threads run meanwhile.");

static PyObject *py_receive(PyObject *self, PyObject *args) {
    int sockets[SOCKETS];
    ssize_t sizes[SOCKETS];
    PyObject *list, *room = NULL, *answer = NULL;
    Py_ssize_t count, most;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &list, &most)) return NULL;
    if ((count = descriptors_of(list, sockets)) < 0) return NULL;
    if (most < 1 || most > PY_SSIZE_T_MAX / SOCKETS) {
        PyErr_SetString(PyExc_ValueError, "no size");
        return NULL;
    }
    if (!(room = PyBytes_FromStringAndSize(NULL, count * most))) return NULL;
    {
        char *to = PyBytes_AsString(room);
        PyThreadState *others = PyEval_SaveThread();
        for (Py_ssize_t i = 0; i < count; i++) {
            sizes[i] = recv(sockets[i], to + i * most, (size_t)most, 0);
            if (sizes[i] < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) sizes[i] = NOTHING;
        }
        PyEval_RestoreThread(others);
        answer = PyList_New(count);
        for (Py_ssize_t i = 0; answer && i < count; i++) {
            PyObject *one = sizes[i] == NOTHING ? Py_NewRef(Py_None)
                          : sizes[i] < 0        ? Py_NewRef(Py_False)
                                                : PyBytes_FromStringAndSize(to + i * most, sizes[i]);
            if (!one || PyList_SetItem(answer, i, one)) Py_CLEAR(answer);
        }
    }
    Py_DECREF(room);
    return answer;
}

PyDoc_STRVAR(send_doc, "send(sockets, pieces, /)\n--\n\n"
"Send to each of the sockets, which are descriptors and do not block, the piece in its place:\n"
"how much was taken of each, -1 if an error says why nothing was.  Other threads run meanwhile.");

static PyObject *py_send(PyObject *self, PyObject *args) {
    int sockets[SOCKETS];
    ssize_t sizes[SOCKETS];
    char *from[SOCKETS];
    PyObject *list, *pieces, *answer;
    Py_ssize_t count;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &list, &PyTuple_Type, &pieces)) return NULL;
    if ((count = descriptors_of(list, sockets)) < 0) return NULL;
    if (PyTuple_Size(pieces) != count) {
        PyErr_SetString(PyExc_ValueError, "not a piece for each socket");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(pieces, i), &from[i], &size)) return NULL;
        sizes[i] = size;
    }
    {
        PyThreadState *others = PyEval_SaveThread();
        for (Py_ssize_t i = 0; i < count; i++) sizes[i] = send(sockets[i], from[i], (size_t)sizes[i], 0);
        PyEval_RestoreThread(others);
    }
    answer = PyList_New(count);
    for (Py_ssize_t i = 0; answer && i < count; i++) {
        PyObject *one = PyLong_FromSsize_t(sizes[i]);
        if (!one || PyList_SetItem(answer, i, one)) Py_CLEAR(answer);
    }
    return answer;
}

static PyMethodDef methods[] = {
    {"send", py_send, METH_VARARGS, send_doc},
    {"receive", py_receive, METH_VARARGS, receive_doc},
    {"messages", py_messages, METH_VARARGS, messages_doc},
    {"sums", py_sums, METH_VARARGS, sums_doc},
    {"scan", py_scan, METH_VARARGS, scan_doc},
    {"pieces", py_pieces, METH_VARARGS, pieces_doc},
    {"walk", py_walk, METH_VARARGS, walk_doc},
    {"run", py_run, METH_VARARGS, run_doc},
    {"rows", py_rows, METH_VARARGS, rows_doc},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module) {
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)start}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "gateway_native.kernel",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_kernel(void);
PyMODINIT_FUNC PyInit_kernel(void) { return PyModuleDef_Init(&definition); }
