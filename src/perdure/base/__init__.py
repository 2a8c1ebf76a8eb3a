"""Values that every room may use: ids, strict JSON, patches, typed codecs, text, clock, errors. Imports nothing of ours."""
