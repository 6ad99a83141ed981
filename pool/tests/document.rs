//! The text that control planes store and relays send: processes of other versions of this
//! software read it, so a renamed field or variant must not show there.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use selkie_pool::control::{Beat, Change, ControlError, PoolState};

/// Every field of a pool's document, each with a value that is not its default.
const DOCUMENT: &str = r#"{
    "format": 7,
    "name": "orders",
    "id": 18446744073709551615,
    "fabric": "tcp",
    "timing": {
        "lease": {"secs": 2, "nanos": 5},
        "heartbeat": {"secs": 0, "nanos": 250000000}
    },
    "gcl_bytes": 2048,
    "range_bytes": 1048576,
    "max_compute_nodes": 58,
    "coding": "4+2,delta=2,mode=detect,journal=always",
    "log_bytes": 65536,
    "ranges": [
        {
            "slabs": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6]],
            "homes": [0, 1, 2, 0, 0, 0],
            "moving": {"position": 2, "also": [6, 7], "counters_wait": true}
        },
        {"slabs": [[6, 0]], "homes": [1], "moving": null}
    ],
    "rebuilds": [
        {
            "number": 3,
            "memory": 1,
            "leaving": 0,
            "before": [{"range": 0, "position": 1, "on": 2, "slab": [1, 2]}],
            "quiet": [4, 5],
            "by": 4,
            "moved": true,
            "tables": [[0, 1], [1, 0]],
            "entered": [6],
            "doubtful": [7, 8],
            "abandoned": [0]
        },
        {
            "number": 4,
            "memory": 2,
            "leaving": null,
            "before": [],
            "quiet": [],
            "by": null,
            "moved": false,
            "entered": [],
            "doubtful": []
        }
    ],
    "rebuilds_begun": 5,
    "regeneration": {
        "range": 1,
        "position": 2,
        "to": [3, 4],
        "by": 5,
        "begun": true,
        "ends": true,
        "attempt": 6
    },
    "migration": {
        "range": 0,
        "position": 2,
        "from": [2, 3],
        "to": [6, 7],
        "by": 1,
        "stage": "Clearing"
    },
    "memory_nodes": [
        {
            "host": 11,
            "descriptor": [32768, 3, 9],
            "dead": false,
            "domain": "rack-7",
            "stay": "Stays",
            "reclaim": {"is_watching": true, "evicting": [[0, 2]], "withdrawn": [[3, 1], [5, 4]]}
        },
        null,
        {"host": 12, "descriptor": [32770, 4, 8], "dead": true, "domain": "", "stay": "Left"}
    ],
    "compute_nodes": {
        "4": {
            "host": 13,
            "incarnation": 2,
            "mailboxes": [{"peer": 4, "region": 5, "ring_bytes": 65536, "peers": 60}],
            "renewals": 3,
            "has_log": true
        }
    },
    "cards": {
        "4": {"host": 13, "card": "127.0.0.1:7000/abc", "reads_only": true}
    },
    "next_index": 7,
    "incarnations": {"4": 2, "5": 1},
    "directories": {"0": {"peer": 32768, "region": 6, "ring_bytes": 4096, "peers": 61}},
    "lost": {
        "9": {
            "fenced": true,
            "acknowledged": [4],
            "sweeper": 4,
            "has_lost_pages": true,
            "held_nothing": true,
            "has_log": true
        }
    },
    "dead": [10],
    "fallen": [{"9": 1, "10": 2}],
    "lost_pages": [12288],
    "abandoned_pages": [16384],
    "abandoned_ranges": [3],
    "moment": {"number": 2, "by": 4},
    "moments": 2,
    "labels": {"catalogue": "4096"}
}"#;

/// The text without what is there for the eye; no string in it has a space.
fn compact(text: &str) -> String {
    text.split_whitespace().collect()
}

#[track_caller]
fn assert_same<T>(text: &str)
where
    T: serde::Serialize + for<'de> serde::Deserialize<'de>,
{
    let text = compact(text);
    let value: T = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
}

#[test]
fn every_field_of_the_document_is_written_as_it_was_read() {
    assert_same::<PoolState>(DOCUMENT);
}

#[test]
fn every_variant_in_the_document_is_written_as_it_was_read() {
    for stage in ["Clearing", "Copying", "Switching", "Switched", "Settling"] {
        assert_same::<PoolState>(&DOCUMENT.replace("Clearing", stage));
    }
    for stay in ["Stays", "Leaving", "Left"] {
        assert_same::<PoolState>(&DOCUMENT.replace("\"Stays\"", &format!("\"{stay}\"")));
    }
    for coding in ["plain", "replicate=3", "2+1", "8+4,delta=1,mode=correct"] {
        let coded = DOCUMENT.replace("4+2,delta=2,mode=detect,journal=always", coding);
        let state: PoolState = serde_json::from_str(&coded).unwrap();
        assert_same::<PoolState>(&coded.replace(coding, &state.coding.to_string()));
    }
}

#[test]
fn fields_that_say_nothing_are_absent_and_may_be() {
    let mut document: serde_json::Value = serde_json::from_str(DOCUMENT).unwrap();
    let fields = document.as_object_mut().unwrap();
    for absent in ["fallen", "moment", "moments"] {
        assert!(fields.remove(absent).is_some());
    }
    let member = fields["memory_nodes"][0].as_object_mut().unwrap();
    assert!(member.remove("reclaim").is_some());
    let node = fields["compute_nodes"]["4"].as_object_mut().unwrap();
    assert!(node.remove("renewals").is_some());
    let state: PoolState = serde_json::from_value(document.clone()).unwrap();
    let mut written = serde_json::to_value(&state).unwrap();
    let fields = written.as_object_mut().unwrap();
    assert_eq!(fields.remove("moments"), Some(0.into()));
    let node = fields["compute_nodes"]["4"].as_object_mut().unwrap();
    assert_eq!(node.remove("renewals"), Some(0.into()));
    assert_eq!(written, document);
}

#[test]
fn beats_changes_and_refusals_are_written_as_they_were_read() {
    assert_same::<Beat>(r#"{"node": 32769, "host": 5, "seen": 6, "report": "r"}"#);
    assert_same::<Change>("18446744073709551615");
    for refusal in [
        r#"{"NoPool": {"place": "p"}}"#,
        r#"{"PoolExists": {"place": "p"}}"#,
        r#"{"Damaged": {"place": "p", "what": "w"}}"#,
        r#"{"OtherPool": {"place": "p", "expected": "e", "found": "f"}}"#,
        r#"{"Refused": {"place": "p", "what": "w"}}"#,
        r#"{"Unavailable": {"place": "p", "what": "w"}}"#,
    ] {
        assert_same::<ControlError>(refusal);
    }
}
