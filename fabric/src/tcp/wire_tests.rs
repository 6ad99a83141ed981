//! Tests of the bytes on a connection.
