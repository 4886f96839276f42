/* A cursor over JSON text. It copies nothing and allocates nothing. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
    const char *at, *end;
    bool wrong; /* the text is not JSON; stays set */
};

struct span {
    const char *start;
    size_t length;
};

/* Enters an object or array if `open`, '{' or '[', is next. */
bool json_enter(struct json *json, char open);

/* Steps to the next member of the object that was entered: false at its end, which is then behind the cursor. */
bool json_member(struct json *json, struct span *name, struct span *value);

/* Steps before the next element of the array that was entered, likewise; the caller reads it. `first` starts true. */
bool json_element(struct json *json, bool *first);

/* Reads a number without fraction; wrong if it is none. */
uint64_t json_number(struct json *json, struct span value);

/* Takes the quotes from a string. Escapes stay as they are. */
struct span json_text(struct span value);

bool span_is(struct span span, const char *text);

#endif
