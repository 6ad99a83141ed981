//! Handles: numbers in the shape of pointers, which are never followed.
//!
//! A number is given out once, so a handle that was closed is known to be none.

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use selkie::SqlDatabase;
use selkie::sql::SqlState;

use crate::call::Failure;
use crate::lent::Place;
use crate::statement::Running;

/// The distance of two handles: they look like pointers to something.
const STEP: usize = 16;

/// What a handle stands for.
#[derive(Clone)]
pub(crate) enum Object {
    Database(SqlDatabase),
    Connection(Arc<Place>),
    Statement(Arc<Running>),
}

static NEXT: AtomicUsize = AtomicUsize::new(STEP);
static OBJECTS: LazyLock<RwLock<HashMap<usize, Object>>> = LazyLock::new(RwLock::default);

/// What has handles of its own type.
pub(crate) trait Handled: Clone {
    /// How errors call it.
    const NAME: &'static str;

    fn of(object: &Object) -> Option<&Self>;
}

macro_rules! handled {
    ($($ty:ty, $variant:ident, $name:literal;)*) => { $(
        impl Handled for $ty {
            const NAME: &'static str = $name;

            fn of(object: &Object) -> Option<&Self> {
                match object {
                    Object::$variant(own) => Some(own),
                    _ => None,
                }
            }
        }
    )* };
}

handled! {
    SqlDatabase, Database, "database";
    Arc<Place>, Connection, "connection";
    Arc<Running>, Statement, "statement";
}

/// A new handle.
pub(crate) fn enter<H>(object: Object) -> *mut H {
    // A number alone: nothing is published by it.
    let number = NEXT.fetch_add(STEP, Ordering::Relaxed);
    OBJECTS.write().insert(number, object);
    ptr::without_provenance_mut(number)
}

/// The error of a handle that is none.
pub(crate) fn unknown<T: Handled>() -> Failure {
    let message = format!("this is no handle of a {}, or one that was closed", T::NAME);
    Failure::new(SqlState::INVALID_PARAMETER, message)
}

/// What a handle stands for.
pub(crate) fn find<H, T: Handled>(handle: *const H) -> Result<T, Failure> {
    let objects = OBJECTS.read();
    let found = objects.get(&handle.addr()).and_then(T::of);
    found.cloned().ok_or_else(unknown::<T>)
}

/// The same, and the handle is none any more.
pub(crate) fn remove<H, T: Handled>(handle: *const H) -> Result<T, Failure> {
    let mut objects = OBJECTS.write();
    let found = objects.get(&handle.addr()).and_then(T::of).cloned();
    let found = found.ok_or_else(unknown::<T>)?;
    let object = objects.remove(&handle.addr());
    drop(objects);
    // What it was may wait for something when it is dropped.
    drop(object);
    Ok(found)
}
