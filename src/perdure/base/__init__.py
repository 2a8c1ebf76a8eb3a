"""Values that every room may use: ids, strict JSON, patches, codecs, text, clock, errors. Imports nothing of ours."""
