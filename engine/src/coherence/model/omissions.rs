//! What a test leaves out of the protocol, to show that it is needed.

/// A part of the recovery from a death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecoveryOmission {
    /// The node is not fenced before it is taken for lost (F1).
    Fence,
    /// Survivors do not wait for the mail of the dead node (F2).
    Mail,
    /// The sweep does not wait for operations that `Lost` began (F3).
    Inquiries,
    /// The sweep does not wait for operations that were outstanding before (F4).
    Operations,
    /// The sweep waits for such an operation, and not for the one that follows in the same step
    /// (F4).
    FollowUps,
    /// Readers add their bits without a look before the sweep.
    Looks,
    /// After a look a reader adds its bit, whatever the word is by then.
    Joins,
    /// No line is taken for lost (F5).
    Loss,
    /// Every line whose word names the node is taken for lost (F5).
    Readers,
    /// The bit of another dead node counts as proof of a copy (F5).
    DeadReaders,
    /// The sweep writes the word, whatever it is by then (F5).
    Compare,
    /// The sweep does not retry when the word has changed (F5).
    Retry,
    /// A node that has acknowledged one death counts as through with any other (F4). Only where
    /// nodes die during a recovery.
    OtherDeaths,
}

impl RecoveryOmission {
    pub(super) const ALL: [RecoveryOmission; 12] = [
        RecoveryOmission::Fence,
        RecoveryOmission::Mail,
        RecoveryOmission::Inquiries,
        RecoveryOmission::Operations,
        RecoveryOmission::FollowUps,
        RecoveryOmission::Looks,
        RecoveryOmission::Joins,
        RecoveryOmission::Loss,
        RecoveryOmission::Readers,
        RecoveryOmission::DeadReaders,
        RecoveryOmission::Compare,
        RecoveryOmission::Retry,
    ];
}

/// A part of the relocation of a lost home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RelocationOmission {
    /// Nodes do not wait for grants that were sent before.
    Grants,
    /// Operations are cut short before the page has reached its splits.
    WriteBack,
    /// Readers do not enter their bits in the new word.
    Readers,
    /// A reader does not name the dead grantor of its copy in the new word, which names any node
    /// that died. Only where nodes die.
    Grantors,
    /// A reader that was writing its copy home in the place of a dead node takes it for home. Only
    /// where nodes die.
    Rejoins,
}

impl RelocationOmission {
    pub(super) const ALL: [RelocationOmission; 3] =
        [RelocationOmission::Grants, RelocationOmission::WriteBack, RelocationOmission::Readers];
}

/// A part of the regeneration of splits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegenerationOmission {
    /// The node that regenerates a split does not wait until its grantor has written the page back.
    Unsettled,
    /// Data and parity splits are written at once.
    AtOnce,
}

impl RegenerationOmission {
    pub(super) const ALL: [RegenerationOmission; 2] =
        [RegenerationOmission::Unsettled, RegenerationOmission::AtOnce];
}
