#include "json.h"

#include <string.h>

static char next(struct json *json) {
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
    return json->at < json->end ? *json->at : '\0';
}

static bool is_wrong(struct json *json) {
    json->wrong = true;
    return false;
}

/* Moves behind the string that begins at the cursor. */
static bool skip_string(struct json *json) {
    const char *at = json->at + 1;
    for (;;) {
        const char *quote = memchr(at, '"', (size_t)(json->end - at));
        if (!quote) return is_wrong(json);
        const char *slash = quote;
        while (slash[-1] == '\\') slash--;
        at = quote + 1;
        if ((quote - slash) % 2 == 0) break;
    }
    json->at = at;
    return true;
}

static bool skip_value(struct json *json) {
    int depth = 0;
    do {
        char first = next(json);
        switch (first) {
        case '"':
            if (!skip_string(json)) return false;
            break;
        case '{':
        case '[':
            depth++;
            json->at++;
            break;
        case '}':
        case ']':
            if (--depth < 0) return is_wrong(json);
            json->at++;
            break;
        case ',':
        case ':':
            if (!depth) return is_wrong(json);
            json->at++;
            break;
        case '\0': return is_wrong(json);
        default:
            while (json->at < json->end && !strchr(",:]} \t\r\n", *json->at)) json->at++;
        }
    } while (depth);
    return true;
}

bool json_enter(struct json *json, char open) {
    if (json->wrong || next(json) != open) return false;
    json->at++;
    return true;
}

bool json_member(struct json *json, struct span *name, struct span *value) {
    char first = next(json);
    if (json->wrong) return false;
    if (first == ',') {
        json->at++;
        first = next(json);
    }
    if (first == '}') {
        json->at++;
        return false;
    }
    if (first != '"') return is_wrong(json);
    name->start = json->at + 1;
    if (!skip_string(json)) return false;
    name->length = (size_t)(json->at - name->start) - 1;
    if (next(json) != ':') return is_wrong(json);
    json->at++;
    next(json);
    value->start = json->at;
    if (!skip_value(json)) return false;
    value->length = (size_t)(json->at - value->start);
    return true;
}

bool json_element(struct json *json, bool *first) {
    char found = next(json);
    if (json->wrong) return false;
    if (found == ']') {
        json->at++;
        return false;
    }
    if (!*first) {
        if (found != ',') return is_wrong(json);
        json->at++;
    }
    *first = false;
    return true;
}

uint64_t json_number(struct json *json, struct span value) {
    uint64_t number = 0;
    for (size_t i = 0; i < value.length; i++) {
        if (value.start[i] < '0' || value.start[i] > '9') {
            json->wrong = true;
            return 0;
        }
        number = number * 10 + (uint64_t)(value.start[i] - '0');
    }
    if (!value.length) json->wrong = true;
    return number;
}

struct span json_text(struct span value) {
    if (value.length < 2 || value.start[0] != '"') return (struct span){value.start, 0};
    return (struct span){value.start + 1, value.length - 2};
}

bool span_is(struct span span, const char *text) {
    return span.length == strlen(text) && !memcmp(span.start, text, span.length);
}
