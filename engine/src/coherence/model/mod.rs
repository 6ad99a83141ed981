//! Model check of the coherence machine by `stateright`: N nodes, one line and one home drive the
//! `Line::step` of [`super::machine`] itself.
//!
//! Home executes each verb of a chain in a step of its own, and the completion is another step.
//! Messages are FIFO per ordered pair of nodes and arbitrarily slow otherwise. Callers read or
//! write, with or without waiting and with any hint, and latch, write and evict whenever the state
//! allows.
//!
//! Contents, where each file uses only those before it:
//! - `wire`, `chain`, `coded_page`, `phases`: messages, operations, splits, numbers of phases;
//! - `world`: the state of the model; `symmetry`: its hash;
//! - `omissions`, `protocol`: the settings of a model and the steps that it can take;
//! - `drive`: feeds events to the machine and carries its actions out;
//! - `application`, `network`, `coded`, `death`, `home`: the steps, by their cause;
//! - `properties`, `checker`: the properties, and the checker's view;
//! - `searches`, `home_and_deaths`: the tests.
//!
//! Exhaustive searches (nodes of a kind are interchangeable; W: callers wait, D: callers are
//! `nowait`, B: both):
//!
//! | nodes | states |
//! | --- | --- |
//! | B B, latches as steps of their own | 77,385 |
//! | B B | 15,559 |
//! | W W W, behind an ignored test, to a bound in each run | 7,841,114 |
//! | W W D, behind an ignored test | 28,092,048 |
//! | W D D, behind an ignored test | 38,518,168 |
//! | D D D, behind an ignored test, to a bound in each run | 15,407,258 |
//! | B B, one of which may die at any time | 40,880 |
//! | the same, which may fail first: it says that it does not hold what it holds | 54,327 |
//! | W W W, one of which, or two at once, may die at any time, in an ignored test | 27,696,884 |
//! | B B with logs, one of which may die at any time | 42,323 |
//! | the same, the page coded, a split of which may be lost at any time | 248,004 |
//! | B B with logs, whose home may be lost at any time | 98,028 |
//! | the same, the page coded | 520,450 |
//! | B B, whose home may be lost at any time | 72,839 |
//! | W W W, whose home may be lost at any time, in an ignored test | 12,493,722 |
//! | B B, the page coded, a split of which may be lost at any time | 80,615 |
//! | the same, and one of the nodes may die at any time, in a write-back too | 230,252 |
//! | B B, the page coded, whose home may be lost at any time | 375,665 |
//!
//! Not exhaustive: four nodes (a bounded search behind an ignored test); in each run of the tests
//! three nodes that are `nowait`, may die, or may lose their home. Not checked: liveness under
//! unfair scheduling. What is checked: from every reachable state some path leads to rest, and at
//! rest no caller is asleep. Priorities are abstracted: a deferred request may overtake any others,
//! so every order that priorities could make is searched. If two nodes die at once, the survivor
//! learns of both at the same time.
//!
//! A death during a recovery is searched to a bound in each run: of three nodes, with and without
//! logs, and with the page coded, where one is left; and of four, where two are left. It may come
//! at any step of the first recovery, and be that of the node that sweeps. Of three nodes without
//! logs an ignored test searches all states; of four another goes on for longer.
//!
//! The loss of the home together with deaths, in any order and in the midst of a recovery, is
//! searched to the end of two nodes, with and without logs, one of which may die. With two deaths
//! it is searched to a bound in each run: of two nodes and a third that has no copy, and that dies
//! with one of them or before it; an ignored test has three nodes with copies.
//!
//! Not searched: a third death; and deaths while the home of a coded page is lost, or moves from
//! memory that lives, which the simulation and `engine/tests/clusters/coded/all_gone.rs` have.

mod application;
mod chain;
mod checker;
mod coded;
mod coded_page;
mod death;
mod drive;
mod home;
mod home_and_deaths;
mod network;
mod omissions;
mod phases;
mod properties;
mod protocol;
mod searches;
mod symmetry;
mod wire;
mod world;
