//! Pages that carry a commit stamp and a link, as the leaves of transactions do, and commits and
//! reads of them by the rules of `selkie_engine::Snapshot`.

use selkie_engine::{ActiveSnapshots, Engine, ExclusiveGuard, GAddr, ImageLink, Snapshot, Stamp};

use crate::common::PAGE;

/// A page: stamp, link, value, and bytes that tell the value.
const VALUE: usize = 16;
const REST: usize = 24;

fn word(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

fn header(page: &[u8]) -> (Stamp, ImageLink) {
    (Stamp::new(word(page, 0)), ImageLink::from_u64(word(page, 8)))
}

/// The value of a page that is whole.
pub(crate) fn value(page: &[u8]) -> u64 {
    let value = word(page, VALUE);
    assert_eq!(page.len(), PAGE);
    assert!(page[REST..].iter().all(|byte| *byte == value as u8), "torn: {page:?}");
    value
}

fn set(page: &mut ExclusiveGuard<'_>, stamp: Stamp, link: ImageLink, value: u64) {
    let bytes = page.bytes_mut(0..PAGE);
    bytes[..8].copy_from_slice(&stamp.get().to_le_bytes());
    bytes[8..VALUE].copy_from_slice(&link.to_u64().to_le_bytes());
    bytes[VALUE..REST].copy_from_slice(&value.to_le_bytes());
    bytes[REST..].fill(value as u8);
}

/// New pages with this value, of before all commits.
pub(crate) async fn new_pages(engine: &Engine, count: usize, value: u64) -> Vec<GAddr> {
    let mut pages = Vec::new();
    for _ in 0..count {
        let mut page = engine.allocate().await.unwrap();
        set(&mut page, Stamp::default(), ImageLink::NONE, value);
        pages.push(page.addr());
    }
    pages.sort();
    pages
}

/// Keeps an image if a snapshot may want it, and changes the page.
pub(crate) fn install(
    engine: &Engine,
    page: &mut ExclusiveGuard<'_>,
    (stamp, active): (Stamp, &ActiveSnapshots),
    new: u64,
) {
    let (write, mut link) = header(page);
    if active.any_since(write) {
        link = engine.keep_image(page, write, stamp, link, active);
    }
    set(page, stamp, link, new);
}

/// Changes pages, which are in order of their addresses, by one commit. Its stamp.
pub(crate) async fn commit(
    engine: &Engine,
    pages: &[GAddr],
    change: impl Fn(usize, u64) -> u64,
) -> Stamp {
    let mut latched = Vec::new();
    for addr in pages {
        latched.push(engine.exclusive(*addr).await.unwrap());
    }
    let (stamp, active) = engine.draw_stamp().await.unwrap();
    for (number, page) in latched.iter_mut().enumerate() {
        let new = change(number, value(page));
        install(engine, page, (stamp, &active), new);
    }
    stamp
}

/// The value of a page at a snapshot; none if it is too old.
pub(crate) async fn read(engine: &Engine, snapshot: &Snapshot, addr: GAddr) -> Option<u64> {
    let mut image = Vec::new();
    let mut before = None;
    loop {
        let link = {
            let page = engine.shared(addr).await.unwrap();
            let (write, link) = header(&page);
            if write <= snapshot.stamp() {
                return Some(value(&page));
            }
            link
        };
        if before == Some(link) {
            return None;
        }
        if engine.image_at(link, snapshot.stamp(), &mut image).await.unwrap().is_some() {
            assert!(header(&image).0 <= snapshot.stamp());
            return Some(value(&image));
        }
        before = Some(link);
    }
}

/// The sum of all pages at a snapshot; none if it is too old.
pub(crate) async fn sum(engine: &Engine, snapshot: &Snapshot, pages: &[GAddr]) -> Option<u64> {
    let mut sum = 0_u64;
    for addr in pages {
        sum = sum.wrapping_add(read(engine, snapshot, *addr).await?);
    }
    Some(sum)
}
