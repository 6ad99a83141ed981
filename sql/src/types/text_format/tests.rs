//! What texts values have.

use super::*;

fn round_trip(text: &str, ty: SqlType) -> SqlResult<String> {
    let settings = FormatSettings::default();
    Ok(to_string(&from_text(text, ty, &settings)?, ty, &settings))
}

#[test]
fn scalars_are_read_and_printed() {
    for (ty, text, out) in [
        (SqlType::BOOL, " TRUE ", "t"),
        (SqlType::BOOL, "of", "f"),
        (SqlType::BOOL, "y", "t"),
        (SqlType::INT4, " -42 ", "-42"),
        (SqlType::INT8, "9223372036854775807", "9223372036854775807"),
        (SqlType::FLOAT8, "0.1", "0.1"),
        (SqlType::FLOAT8, "1e15", "1e+15"),
        (SqlType::FLOAT8, "123456789012345", "123456789012345"),
        (SqlType::FLOAT8, "0.0001", "0.0001"),
        (SqlType::FLOAT8, "0.00001", "1e-05"),
        (SqlType::FLOAT8, "-0", "-0"),
        (SqlType::FLOAT8, "nan", "NaN"),
        (SqlType::FLOAT8, "-inf", "-Infinity"),
        (SqlType::FLOAT8, "1e300", "1e+300"),
        (SqlType::FLOAT4, "1234567", "1.234567e+06"),
        (SqlType::FLOAT4, "123456", "123456"),
        (SqlType::FLOAT4, "3.4", "3.4"),
        (SqlType::NUMERIC, "12.340", "12.340"),
        (SqlType::BYTEA, "\\xDEadBEEF", "\\xdeadbeef"),
        (SqlType::BYTEA, "a\\\\b\\001", "\\x615c6201"),
        (
            SqlType::UUID,
            "{A0EEBC99-9C0B4EF8-BB6D6BB9-BD380A11}",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        (SqlType::new(Scalar::Char).with_modifier(7), "ab ", "ab "),
        (SqlType::JSON, " {\"b\":1} ", " {\"b\":1} "),
        (SqlType::JSONB, " {\"b\":1} ", "{\"b\": 1}"),
        (SqlType::new(Scalar::Regtype), "int4", "integer"),
    ] {
        assert_eq!(round_trip(text, ty).unwrap(), out, "{text} as {}", ty.name());
    }
}

#[test]
fn what_is_no_value_is_refused() {
    for (ty, text, state, message) in [
        (
            SqlType::INT4,
            "abc",
            SqlState::INVALID_TEXT,
            "invalid input syntax for type integer: \"abc\"",
        ),
        (
            SqlType::INT4,
            "2147483648",
            SqlState::NUMERIC_OUT_OF_RANGE,
            "value \"2147483648\" is out of range for type integer",
        ),
        (
            SqlType::BOOL,
            "o",
            SqlState::INVALID_TEXT,
            "invalid input syntax for type boolean: \"o\"",
        ),
        (
            SqlType::FLOAT8,
            "1e400",
            SqlState::NUMERIC_OUT_OF_RANGE,
            "\"1e400\" is out of range for type double precision",
        ),
        (
            SqlType::VARCHAR.with_modifier(7),
            "abcd",
            SqlState::STRING_DATA_RIGHT_TRUNCATION,
            "value too long for type character varying(3)",
        ),
        (
            SqlType::array(Scalar::Int4),
            "{1,2",
            SqlState::INVALID_TEXT,
            "malformed array literal: \"{1,2\"",
        ),
    ] {
        let error = round_trip(text, ty).unwrap_err();
        assert_eq!((error.state(), error.message()), (state, message));
    }
    for text in ["", "1.5", "0x1", "+", "1 2", "--1"] {
        round_trip(text, SqlType::INT8).unwrap_err();
    }
    for text in ["", "a0eebc99", "a0eebc99-9c0b4ef8-bb6d6bb9-bd380a1g", "-", "a-b"] {
        round_trip(text, SqlType::UUID).unwrap_err();
    }
}

#[test]
fn arrays_are_read_and_printed() {
    let (ints, texts) = (SqlType::array(Scalar::Int4), SqlType::array(Scalar::Text));
    for (ty, text, out) in [
        (ints, "{1,2, 3 }", "{1,2,3}"),
        (ints, "{}", "{}"),
        (ints, "{1,NULL}", "{1,NULL}"),
        (ints, "{{1,2},{3,4}}", "{{1,2},{3,4}}"),
        (ints, "[0:1]={7,8}", "[0:1]={7,8}"),
        (
            texts,
            r#"{a,"b c","", "NULL" ,null,"x\"y",a\,b}"#,
            r#"{a,"b c","","NULL",NULL,"x\"y","a,b"}"#,
        ),
        (texts, "{ a b , c}", "{\"a b\",c}"),
    ] {
        assert_eq!(round_trip(text, ty).unwrap(), out, "{text}");
    }
    for text in
        ["", "1", "{1,}", "{,1}", "{1}{2}", "{{1},{2,3}}", "{1,{2}}", "{{1},2}", "[1:3]={1}"]
    {
        assert_eq!(round_trip(text, ints).unwrap_err().state(), SqlState::INVALID_TEXT, "{text}");
    }
    round_trip("{{{{{{{1}}}}}}}", ints).unwrap_err();
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_value_or_an_error(
        text in "[-+0-9a-z:./{}\\[\\]\"\\\\, TP]{0,24}|\\PC{0,12}"
    ) {
        let settings = FormatSettings::default();
        for scalar in Scalar::all() {
            for ty in [SqlType::new(scalar), SqlType::array(scalar)] {
                // What is printed is read as the same again.
                let Ok(value) = from_text(&text, ty, &settings) else { continue };
                let shown = to_string(&value, ty, &settings);
                if let Ok(again) = from_text(&shown, ty, &settings) {
                    assert!(crate::types::order::compare(&value, &again).is_eq(), "{text}");
                } else {
                    panic!("{} prints {shown}, which it cannot read", ty.name());
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in proptest::collection::vec(0u8..=255, 0..40)) {
        for scalar in Scalar::all() {
            for ty in [SqlType::new(scalar), SqlType::array(scalar)] {
                if let Ok(value) = crate::types::binary_format::from_binary(&bytes, ty) {
                    drop(to_string(&value, ty, &FormatSettings::default()));
                }
            }
        }
    }
}
