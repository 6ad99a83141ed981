//! Functions of texts and numbers.

use crate::error::SqlState;
use crate::functions::testing::{call, operate, rows};

fn check(cases: &[(&str, &[&str], &str)]) {
    for (name, arguments, result) in cases {
        let given = call(name, arguments);
        assert_eq!(given.unwrap(), *result, "{name}({})", arguments.join(", "));
    }
}

#[test]
fn texts_are_worked_on() {
    check(&[
        ("length", &["jose"], "4"),
        ("length", &["bpchar:ab  "], "2"),
        ("octet_length", &["text:josé"], "5"),
        ("upper", &["tom"], "TOM"),
        ("initcap", &["hi THOMAS"], "Hi Thomas"),
        ("substring", &["Thomas", "int4:2", "int4:3"], "hom"),
        ("substr", &["alphabet", "int4:3"], "phabet"),
        ("substring", &["abc", "int4:-1", "int4:3"], "a"),
        ("left", &["abcde", "int4:2"], "ab"),
        ("left", &["abcde", "int4:-2"], "abc"),
        ("right", &["abcde", "int4:2"], "de"),
        ("right", &["abcde", "int4:-2"], "cde"),
        ("lpad", &["hi", "int4:5", "xy"], "xyxhi"),
        ("rpad", &["hi", "int4:5"], "hi   "),
        ("lpad", &["hello", "int4:2"], "he"),
        ("btrim", &["xyxtrimyyx", "xyz"], "trim"),
        ("ltrim", &["zzzytest", "xyz"], "test"),
        ("rtrim", &["  a  "], "  a"),
        ("replace", &["abcdefabcdef", "cd", "XX"], "abXXefabXXef"),
        ("translate", &["12345", "143", "ax"], "a2x5"),
        ("strpos", &["high", "ig"], "2"),
        ("split_part", &["abc~@~def~@~ghi", "~@~", "int4:2"], "def"),
        ("split_part", &["abc,def,ghi,jkl", ",", "int4:-2"], "ghi"),
        ("concat", &["abcde", "int4:2", "text:NULL", "int4:22"], "abcde222"),
        ("concat_ws", &[",", "text:abcde", "int4:2", "text:NULL", "int4:22"], "abcde,2,22"),
        ("repeat", &["Pg", "int4:4"], "PgPgPgPg"),
        ("reverse", &["abcde"], "edcba"),
        ("ascii", &["x"], "120"),
        ("chr", &["int4:65"], "A"),
        ("md5", &["text:abc"], "900150983cd24fb0d6963f7d28e17f72"),
        ("md5", &["text:"], "d41d8cd98f00b204e9800998ecf8427e"),
        ("encode", &["bytea:123\\000\\001", "base64"], "MTIzAAE="),
        ("encode", &["bytea:\\x00ff", "hex"], "00ff"),
        ("decode", &["MTIzAAE=", "base64"], "\\x3132330001"),
        ("format", &["Hello %s, %1$s", "text:World"], "Hello World, World"),
        ("format", &["|%10s|%-10s|", "text:foo", "text:bar"], "|       foo|bar       |"),
        ("format", &["%I = %L", "text:Foo bar", "text:O'Reilly"], "\"Foo bar\" = 'O''Reilly'"),
        ("quote_ident", &["text:select"], "\"select\""),
        ("quote_ident", &["text:foo"], "foo"),
        ("quote_literal", &["text:a\\b"], "E'a\\\\b'"),
        ("starts_with", &["alphabet", "alph"], "t"),
        ("to_hex", &["int4:-1"], "ffffffff"),
        ("to_hex", &["int8:2147483647"], "7fffffff"),
        ("overlay", &["Txxxxas", "hom", "int4:2", "int4:4"], "Thomas"),
    ]);
    for (name, arguments, state) in [
        ("chr", &["int4:0"][..], SqlState::PROGRAM_LIMIT_EXCEEDED),
        ("repeat", &["abc", "int4:2147483647"], SqlState::PROGRAM_LIMIT_EXCEEDED),
        ("substring", &["abc", "int4:1", "int4:-1"], SqlState::SUBSTRING_ERROR),
        ("overlay", &["abc", "x", "int4:0"], SqlState::SUBSTRING_ERROR),
        ("decode", &["x", "base64"], SqlState::INVALID_PARAMETER),
        ("upper", &["int4:1"], SqlState::UNDEFINED_FUNCTION),
        ("regexp_replace", &["a", "(", "b"], SqlState::INVALID_REGEX),
    ] {
        assert_eq!(call(name, arguments).unwrap_err().state(), state, "{name}");
    }
    assert_eq!(rows("regexp_matches", &["abc", "[a-z]", "g"]).unwrap(), "{a} {b} {c}");
}

#[test]
fn numbers_are_worked_on() {
    check(&[
        ("abs", &["numeric:-17.4"], "17.4"),
        ("abs", &["-17.4"], "17.4"),
        ("ceil", &["numeric:-42.8"], "-42"),
        ("floor", &["numeric:-42.8"], "-43"),
        ("ceil", &["float8:42.2"], "43"),
        ("round", &["numeric:42.4382", "int4:2"], "42.44"),
        ("round", &["float8:2.5"], "2"),
        ("round", &["numeric:2.5"], "3"),
        ("trunc", &["numeric:-42.8"], "-42"),
        ("trunc", &["numeric:42.4382", "int4:2"], "42.43"),
        ("mod", &["int4:9", "int4:4"], "1"),
        ("div", &["numeric:9", "numeric:4"], "2"),
        ("sign", &["numeric:-8.4"], "-1"),
        ("sqrt", &["float8:2"], "1.4142135623730951"),
        ("sqrt", &["numeric:2"], "1.414213562373095"),
        ("cbrt", &["float8:64.0"], "4"),
        ("exp", &["numeric:1.0"], "2.7182818284590452"),
        ("exp", &["float8:1"], "2.718281828459045"),
        ("ln", &["numeric:2.0"], "0.6931471805599453"),
        ("log", &["numeric:100"], "2.0000000000000000"),
        ("log", &["numeric:2.0", "numeric:64.0"], "6.0000000000000000"),
        ("power", &["float8:9", "float8:3"], "729"),
        ("power", &["numeric:9", "numeric:3"], "729.0000000000000000"),
        ("power", &["numeric:2", "numeric:0.5"], "1.4142135623730950"),
        ("power", &["numeric:10", "numeric:-3"], "0.0010000000000000"),
        ("power", &["numeric:-2", "numeric:3"], "-8.0000000000000000"),
        ("ln", &["numeric:100000"], "11.512925464970228"),
        ("degrees", &["float8:0.5"], "28.64788975654116"),
        ("pi", &[], "3.141592653589793"),
        ("random", &[], "0.5"),
        ("gcd", &["int4:1071", "int4:462"], "21"),
        ("lcm", &["int4:1071", "int4:462"], "23562"),
        ("factorial", &["int8:5"], "120"),
        ("width_bucket", &["float8:5.35", "float8:0.024", "float8:10.06", "int4:5"], "3"),
        ("version", &[], "PostgreSQL 15.0 (Selkie 0.1.0)"),
        ("pg_typeof", &["int4:1"], "integer"),
        ("current_schema", &[], "public"),
        ("scale", &["numeric:8.4100"], "4"),
        ("text", &["int4:5"], "5"),
    ]);
    assert_eq!(operate("numeric:2", "^", "numeric:3").unwrap(), "8.0000000000000000");
    for (name, arguments, state) in [
        ("sqrt", &["float8:-1"][..], SqlState::INVALID_ARGUMENT_FOR_POWER),
        ("power", &["numeric:0", "numeric:-1"], SqlState::INVALID_ARGUMENT_FOR_POWER),
        ("ln", &["numeric:0"], SqlState::INVALID_ARGUMENT_FOR_LOGARITHM),
        (
            "width_bucket",
            &["float8:1", "float8:1", "float8:1", "int4:1"],
            SqlState::INVALID_ARGUMENT_FOR_WIDTH_BUCKET,
        ),
        ("exp", &["float8:1000"], SqlState::NUMERIC_OUT_OF_RANGE),
        ("power", &["numeric:10", "numeric:200000"], SqlState::NUMERIC_OUT_OF_RANGE),
        ("abs", &["int4:-2147483648"], SqlState::NUMERIC_OUT_OF_RANGE),
    ] {
        assert_eq!(call(name, arguments).unwrap_err().state(), state, "{name}");
    }
}
