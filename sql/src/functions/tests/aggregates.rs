//! Aggregates.

use crate::functions::testing::aggregate;

#[test]
fn aggregates_gather() {
    for (name, ty, rows, more, result) in [
        ("count", "int4", &["1", "NULL", "2"][..], &[][..], "2"),
        ("sum", "int4", &["1", "2"], &[], "3"),
        ("sum", "int8", &["9223372036854775807", "1"], &[], "9223372036854775808"),
        ("sum", "numeric", &["1.5", "2.25"], &[], "3.75"),
        ("sum", "int4", &[], &[], "NULL"),
        ("avg", "int4", &["1", "2"], &[], "1.5000000000000000"),
        ("avg", "numeric", &["10", "20.5", "1"], &[], "10.5000000000000000"),
        ("avg", "float8", &["1", "2"], &[], "1.5"),
        ("avg", "interval", &["1 hour", "2 hours"], &[], "01:30:00"),
        ("min", "text", &["b", "a"], &[], "a"),
        ("max", "numeric", &["1", "NaN", "2"], &[], "NaN"),
        ("bool_and", "bool", &["t", "f"], &[], "f"),
        ("bool_or", "bool", &["t", "NULL"], &[], "t"),
        ("bit_and", "int4", &["6", "3"], &[], "2"),
        ("bit_or", "int4", &["6", "3"], &[], "7"),
        ("string_agg", "text", &["a", "NULL", "b"], &[","], "a,b"),
        ("array_agg", "int4", &["1", "NULL"], &[], "{1,NULL}"),
        ("array_agg", "int4[]", &["{1,2}", "{3,4}"], &[], "{{1,2},{3,4}}"),
        ("json_agg", "int4", &["1", "NULL"], &[], "[1, null]"),
        ("jsonb_agg", "text", &["a"], &[], "[\"a\"]"),
        ("json_object_agg", "text", &["a", "b"], &["int4:1"], "{ \"a\" : 1, \"b\" : 1 }"),
        ("variance", "int4", &["1", "2", "3", "4"], &[], "1.6666666666666667"),
        ("stddev", "int4", &["1", "2", "3", "4"], &[], "1.2909944487358056"),
        ("var_pop", "float8", &["1", "2", "3", "4"], &[], "1.25"),
        ("stddev_samp", "int4", &["1"], &[], "NULL"),
    ] {
        assert_eq!(aggregate(name, ty, rows, more).unwrap(), result, "{name} of {rows:?}");
    }
}
