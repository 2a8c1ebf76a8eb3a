"""Random JSON values and edits for the tests of this room."""

from typing import Any

from hypothesis import strategies as st

from perdure.base.jsonvalue import LARGEST_INTEGER

keys = st.sampled_from(["a", "b", "c", "", "~", "/", "~1", "0", "-", "é"]) | st.text(max_size=3)
scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 0.0, 1.0, "", "a", "ab", "abc", "😀"])
    | st.integers(-LARGEST_INTEGER, LARGEST_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=4)


values: st.SearchStrategy[Any] = st.recursive(scalars, _containers, max_leaves=15)
containers: st.SearchStrategy[Any] = _containers(values)
