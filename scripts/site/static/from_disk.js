// A page that was opened from the disk may not read others, so the search shows where a word is, and not the words around it.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
