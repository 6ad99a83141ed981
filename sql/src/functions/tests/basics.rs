//! Operators, arrays, documents and patterns.

use crate::error::SqlState;
use crate::functions::testing::{call, operate, rows};

#[test]
fn operators_compute() {
    for (left, op, right, result) in [
        ("int4:7", "/", "int4:2", "3"),
        ("int4:-7", "/", "int4:2", "-3"),
        ("int4:-7", "%", "int4:2", "-1"),
        ("int4:1", "+", "int8:2", "3"),
        ("int4:1", "/", "numeric:3", "0.33333333333333333333"),
        ("float8:1", "/", "int4:3", "0.3333333333333333"),
        ("float4:1", "+", "float4:0.1", "1.1"),
        ("int4:5", "&", "int4:3", "1"),
        ("int4:5", "#", "int4:3", "6"),
        ("int4:1", "<<", "int4:33", "2"),
        ("int4:-8", ">>", "int4:1", "-4"),
        ("date:2001-09-28", "+", "int4:7", "2001-10-05"),
        ("date:2001-09-28", "+", "interval:1 hour", "2001-09-28 01:00:00"),
        ("date:2001-10-01", "-", "date:2001-09-28", "3"),
        ("timestamp:2001-09-28 01:00", "+", "interval:23 hours", "2001-09-29 00:00:00"),
        ("timestamp:2001-09-29 03:00", "-", "timestamp:2001-07-27 12:00", "63 days 15:00:00"),
        ("time:05:00", "-", "time:03:00", "02:00:00"),
        ("time:05:00", "-", "interval:2 hours", "03:00:00"),
        ("interval:1 day", "-", "interval:1 hour", "1 day -01:00:00"),
        ("interval:1 second", "*", "int4:900", "00:15:00"),
        ("interval:1 hour", "/", "float8:1.5", "00:40:00"),
        ("text:a", "||", "text:b", "ab"),
        ("text:a", "||", "int4:1", "a1"),
        ("int4[]:{1,2}", "||", "int4:3", "{1,2,3}"),
        ("int4:0", "||", "int4[]:{1,2}", "{0,1,2}"),
        ("int4[]:{1}", "||", "int4[]:{2,3}", "{1,2,3}"),
        ("int4[]:{1,4,3}", "@>", "int4[]:{3,1}", "t"),
        ("int4[]:{1,4,3}", "&&", "int4[]:{2,1}", "t"),
        ("text:abc", "~~", "a%", "t"),
        ("text:abc", "~~", "_b_", "t"),
        ("text:abc", "~~", "c", "f"),
        ("text:a%c", "~~", "a\\%c", "t"),
        ("text:ABC", "~~*", "a%", "t"),
        ("text:abc", "!~~", "a%", "f"),
        ("text:thomas", "~", "t.*ma", "t"),
        ("text:thomas", "~*", "T.*ma", "t"),
        ("jsonb:{\"a\": {\"b\": [1, 2]}}", "->", "a", "{\"b\": [1, 2]}"),
        ("jsonb:{\"a\": \"x\"}", "->>", "a", "x"),
        ("json:[1,2,3]", "->", "int4:-1", "3"),
        ("json:{\"a\": {\"b\":[\"foo\"]}}", "#>>", "{a,b,0}", "foo"),
        ("jsonb:{\"a\":1, \"b\":2}", "@>", "{\"b\":2}", "t"),
        ("jsonb:{\"a\":1, \"b\":2}", "?", "b", "t"),
        ("jsonb:{\"a\":1}", "||", "{\"b\":2}", "{\"a\": 1, \"b\": 2}"),
        ("jsonb:{\"a\":1, \"b\":2}", "-", "text:a", "{\"b\": 2}"),
        ("bool:t", ">", "bool:f", "t"),
        ("numeric:1.0", "=", "numeric:1", "t"),
        ("bpchar:a", "=", "bpchar:a  ", "t"),
        ("date:2000-01-01", "<", "timestamp:2000-01-01 00:00:01", "t"),
        ("numeric:2.50", "*", "numeric:1.5", "3.750"),
    ] {
        assert_eq!(operate(left, op, right).unwrap(), result, "{left} {op} {right}");
    }
    for (left, op, right, state, message) in [
        ("int4:2147483647", "+", "int4:1", SqlState::NUMERIC_OUT_OF_RANGE, "integer out of range"),
        (
            "int4:-2147483648",
            "/",
            "int4:-1",
            SqlState::NUMERIC_OUT_OF_RANGE,
            "integer out of range",
        ),
        (
            "int8:9223372036854775807",
            "*",
            "int4:2",
            SqlState::NUMERIC_OUT_OF_RANGE,
            "bigint out of range",
        ),
        ("int4:1", "/", "int4:0", SqlState::DIVISION_BY_ZERO, "division by zero"),
        ("float8:1", "/", "float8:0", SqlState::DIVISION_BY_ZERO, "division by zero"),
        ("numeric:1", "%", "numeric:0", SqlState::DIVISION_BY_ZERO, "division by zero"),
        (
            "float8:1e300",
            "*",
            "float8:1e300",
            SqlState::NUMERIC_OUT_OF_RANGE,
            "value out of range: overflow",
        ),
    ] {
        let error = operate(left, op, right).unwrap_err();
        assert_eq!((error.state(), error.message()), (state, message), "{left} {op} {right}");
    }
}

#[test]
fn arrays_and_documents_are_looked_into() {
    for (name, arguments, result) in [
        ("array_length", &["int4[]:{1,2,3}", "int4:1"][..], "3"),
        ("array_length", &["int4[]:{}", "int4:1"], "NULL"),
        ("cardinality", &["int4[]:{{1,2},{3,4}}"], "4"),
        ("array_append", &["int4[]:{1,2}", "int4:3"], "{1,2,3}"),
        ("array_prepend", &["int4:1", "int4[]:{2,3}"], "{1,2,3}"),
        ("array_position", &["text[]:{sun,mon,tue}", "mon"], "2"),
        ("array_remove", &["int4[]:{1,2,3,2}", "int4:2"], "{1,3}"),
        ("array_upper", &["int4[]:[0:1]={1,2}", "int4:1"], "1"),
        ("array_ndims", &["int4[]:{{1,2}}"], "2"),
        ("array_to_string", &["int4[]:{1,2,NULL,3}", ",", "*"], "1,2,*,3"),
        ("array_to_string", &["int4[]:{1,2,NULL,3}", ","], "1,2,3"),
        ("string_to_array", &["xx~~yy~~zz", "~~", "yy"], "{xx,NULL,zz}"),
        ("string_to_array", &["abc", "text:NULL"], "{a,b,c}"),
        ("json_build_object", &["a", "int4:1", "b", "text:x"], "{\"a\" : 1, \"b\" : \"x\"}"),
        ("jsonb_build_array", &["int4:1", "NULL", "text:x"], "[1, null, \"x\"]"),
        ("to_json", &["text:a \"b\""], "\"a \\\"b\\\"\""),
        ("to_json", &["int4[]:{1,2}"], "[1,2]"),
        ("to_jsonb", &["timestamp:2001-02-16 20:38:40"], "\"2001-02-16T20:38:40\""),
        ("json_typeof", &["json:-123.4"], "number"),
        ("jsonb_array_length", &["jsonb:[1,2,3]"], "3"),
        (
            "jsonb_set",
            &["jsonb:[{\"f1\":1,\"f2\":null},2]", "text[]:{0,f1}", "jsonb:[2,3]"],
            "[{\"f1\": [2, 3], \"f2\": null}, 2]",
        ),
        ("regexp_match", &["foobarbequebaz", "(bar)(beque)"], "{bar,beque}"),
        ("regexp_replace", &["foobarbaz", "b(..)", "X\\1Y", "g"], "fooXarYXazY"),
        ("regexp_replace", &["foobarbaz", "b..", "X"], "fooXbaz"),
        ("regexp_split_to_array", &["hello world", "\\s+"], "{hello,world}"),
        ("substring", &["Thomas", "...$"], "mas"),
        ("substring", &["foobar", "o(.)b"], "o"),
        ("similar_to", &["abc", "%(b|d)%"], "t"),
        ("similar_to", &["abc", "(b|c)%"], "f"),
        ("now", &[], "2000-01-01 02:00:00+02"),
    ] {
        assert_eq!(call(name, arguments).unwrap(), result, "{name}({})", arguments.join(", "));
    }
}

#[test]
fn rows_are_given() {
    for (name, arguments, result) in [
        ("generate_series", &["int4:1", "int4:3"][..], "1 2 3"),
        ("generate_series", &["int4:5", "int4:1", "int4:-2"], "5 3 1"),
        ("generate_series", &["int4:2", "int4:1"], ""),
        ("generate_series", &["numeric:1.1", "numeric:4", "numeric:1.3"], "1.1 2.4 3.7"),
        ("generate_series", &["int4:2147483646", "int4:2147483647"], "2147483646 2147483647"),
        ("unnest", &["int4[]:{{1,2},{3,NULL}}"], "1 2 3 NULL"),
        ("generate_subscripts", &["int4[]:{7,8}", "int4:1"], "1 2"),
        ("regexp_split_to_table", &["a1b2c", "\\d"], "a b c"),
        ("string_to_table", &["a,b", ","], "a b"),
        ("jsonb_array_elements", &["jsonb:[1, [2]]"], "1 [2]"),
        ("json_array_elements_text", &["json:[\"x\", null]"], "x NULL"),
        ("jsonb_each_text", &["jsonb:{\"a\":\"foo\", \"b\":1}"], "a,foo b,1"),
        ("json_object_keys", &["json:{\"b\":1,\"a\":2}"], "b a"),
    ] {
        assert_eq!(rows(name, arguments).unwrap(), result, "{name}({})", arguments.join(", "));
    }
    let months = ["timestamp:2001-01-31", "timestamp:2001-04-01", "interval:1 month"];
    assert_eq!(
        rows("generate_series", &months).unwrap(),
        "2001-01-31 00:00:00 2001-02-28 00:00:00 2001-03-28 00:00:00"
    );
    rows("generate_series", &["int4:1", "int4:2", "int4:0"]).err().unwrap();
}
