"""JSON that is legal and odd, as texts, for hypothesis."""

import json

from hypothesis import strategies as st

CANARY = "zq9canary"
"""In every made-up text: no reason may repeat it."""
LONE = ("\\ud83d", "\\uDE00", "\\udc00\\ud800", "\\uD800x", "\\u0000", "\\ufffe", "\\ud83d\\ude00")
NUMBERS = (
    "0", "-0", "-0.0", "1e400", "-1e400", "1E-400", "1" + "0" * 400, "9" * 4_300, "9" * 5_000,
    "-" + "9" * 5_000, "18446744073709551616", "-9223372036854775809", "0." + "3" * 2_000,
    "1e99999999999999999999", "5e-324", "1.7976931348623159e308",
)  # fmt: skip
NOT_JSON = ("NaN", "Infinity", "-Infinity")

_strings = st.one_of(
    st.text(max_size=20).map(lambda text: json.dumps(CANARY + text)),
    st.text(max_size=20).map(lambda text: json.dumps(text + CANARY, ensure_ascii=False))
    .filter(lambda literal: not any("\ud800" <= letter <= "\udfff" for letter in literal)),
    st.sampled_from(LONE).map(lambda escape: f'"{CANARY}{escape}"'),
)  # fmt: skip
_names = st.one_of(
    st.sampled_from(['"a"', '"b"', '""', '"\\u0061"', '"turn.id"', '"rater"', '"$blob"']),
    st.sampled_from(LONE).map(lambda escape: f'"{escape}"'),
    _strings,
)
_values = st.recursive(
    st.one_of(
        _strings,
        st.sampled_from(NUMBERS),
        st.integers().map(str),
        st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
        st.sampled_from(["null", "true", "false", "{}", "[]", *NOT_JSON]),
    ),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: f"[{' , '.join(items)}]")
        | st.lists(st.tuples(_names, inner), max_size=4).map(
            lambda members: "{" + ",\n".join(f"{name} :{value}" for name, value in members) + "}"
        )
    ),
    max_leaves=12,
)  # fmt: skip
_times = st.one_of(
    st.datetimes(timezones=st.timezones()).map(lambda time: json.dumps(time.isoformat())),
    st.integers(-(10**13), 10**13).map(str),
    st.sampled_from(['"0001-01-01T00:00:00+14:00"', '"9999-12-31T23:59:59-14:00"', "0", '"0"']),
    _values,
)
attributes = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ['"thumbwheel.turn.submitted.v1"', '"thumbwheel.feedback.submitted.v1"', '"x.y"']
        )
        | _values,
        "data": _values,
    },
    optional={
        "time": _times,
        "sequence": _values | st.sampled_from(['"5.0"', '"1_0"', '" 7 "', "5.0", "true", "-0.0"]),
        "subject": _values,
        "user": _values,
        "partitionkey": _values,
        "dataschema": _values | st.sampled_from([f'"urn:x:1.{"9" * 5_000}"', '"urn:x:1.7"']),
        "consent": st.sampled_from(['"code"', '"training"', '"metrics"']) | _values,
        "monoms": _values,
        "traceparent": _values,
    },
)
