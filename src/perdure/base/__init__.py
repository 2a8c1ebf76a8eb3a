"""Values that every room may use: ids, strict JSON, patch operations, typed codecs, clock, errors. Imports nothing of ours."""
