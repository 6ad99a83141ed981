//! `selkie pool status` and `selkie pool list`: what state pools are in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use comfy_table::{CellAlignment, Table, presets};
use selkie::fabric::{Env, PeerId};
use selkie::pool::control::{MemoryMember, PoolState};
use selkie::pool::{Health, MigrationStage, Reclaim, Residency, Verdict};
use selkie::report::{NodeReport, Report};
use selkie::shared::{Credentials, Place, SharedPool, SharedPoolError};
use selkie_tpcc::units;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::pool_verdict::{absent, advice, headline, names, plural, word};
use crate::support::stdout::tell;

/// How long the speed of a rebuild is measured, if one is under way.
const MEASURED: Duration = Duration::from_secs(1);

/// A pool at one time.
struct Look {
    state: std::sync::Arc<PoolState>,
    living: BTreeSet<PeerId>,
    health: Health,
    /// Bytes of pages that memory nodes of a plain pool have given out, by index.
    leased: BTreeMap<u16, u64>,
    made_at: Option<SystemTime>,
}

impl Look {
    async fn at(shared: &SharedPool) -> Result<Self, SharedPoolError> {
        let state = shared.load().await?;
        let living: BTreeSet<PeerId> = shared.living().await?.into_iter().collect();
        let health = state.health(|node| living.contains(&node));
        let mut leased = BTreeMap::new();
        if state.coding.is_plain() {
            for (beat, _) in shared.plane().beats().await.map_err(|e| shared.explain(e))? {
                let report = Report::parse(&beat.report).ok().map(|report| report.node);
                if let Some(NodeReport::Memory(memory)) = report {
                    leased.insert(beat.node.index(), memory.leased_bytes);
                }
            }
        }
        Ok(Self { state, living, health, leased, made_at: shared.made_at() })
    }

    fn lives(&self, node: PeerId) -> bool {
        self.living.contains(&node)
    }

    /// The memory nodes that are in use.
    fn members(&self) -> impl Iterator<Item = (u16, &MemoryMember)> {
        let all = self.state.memory_nodes.iter().flatten();
        let all = all.map(|member| (member.descriptor.peer.index(), member));
        all.filter(|(node, member)| self.why_apart(*node, member).is_none())
    }

    /// Why a memory node is not in use any more.
    fn why_apart(&self, node: u16, member: &MemoryMember) -> Option<&'static str> {
        match member.stay {
            Residency::Left => Some("has left"),
            _ if member.dead => Some("dead"),
            // It may come back. Where memory is shared, its process is gone.
            _ if self.lives(PeerId::memory(node)) || self.state.waits_for_silent() => None,
            _ => Some("dead: its process is gone"),
        }
    }

    fn lent_bytes(&self) -> u64 {
        self.members().map(|(node, _)| self.state.lent_bytes(node)).sum()
    }

    /// Bytes of pages that memory in use has room for.
    fn usable_bytes(&self) -> u64 {
        if self.health.is_memory_gone() {
            return 0;
        }
        let mut state = PoolState::clone(&self.state);
        for (index, member) in (0_u16..).zip(&mut state.memory_nodes) {
            if let Some(member) = member {
                member.dead |= self.why_apart(index, member).is_some();
            }
        }
        state.usable_bytes()
    }

    fn used_bytes(&self) -> Option<u64> {
        if self.health.is_memory_gone() {
            return Some(0);
        }
        let of_members = || self.members().map(|(node, _)| self.used_on(node)).sum();
        self.state.used_bytes().or_else(of_members)
    }

    /// Bytes of pages in a memory node's slabs that are in use.
    fn used_on(&self, node: u16) -> Option<u64> {
        if self.state.coding.is_plain() {
            return self.leased.get(&node).copied();
        }
        let slabs = u32::try_from(self.state.slabs_on(node)).unwrap_or(u32::MAX);
        Some(self.state.page_bytes_in(slabs))
    }

    fn as_json(&self, pool: &Place) -> Value {
        let Self { state, health, .. } = self;
        let memory = state.memory_nodes.iter().enumerate();
        let memory: Vec<_> = memory.map(|(index, node)| self.memory_as_json(index, node)).collect();
        let compute = state.compute_nodes.keys();
        let compute: Vec<_> = compute
            .map(|index| json!({ "node": index, "lives": self.lives(PeerId::compute(*index)) }))
            .collect();
        let lost_pages = state.lost_pages.union(&state.abandoned_pages);
        let mut object = json!({
            "pool": state.name, "id": format!("{:016x}", state.id), "verdict": word(health.verdict()),
            "says": headline(health, state, None), "help": advice(health, state, pool),
            "made_unix_s": self.made_at.and_then(seconds), "fabric": state.fabric,
            "lease_ms": state.timing.lease.as_millis() as u64, "heartbeat_ms": state.timing.heartbeat.as_millis() as u64,
            "gcl_bytes": state.gcl_bytes, "range_bytes": state.range_bytes, "slab_bytes": state.slab_bytes(),
            "log_bytes": state.log_bytes, "coding": state.coding.to_string(), "ranges": state.ranges.len(),
            "lent_bytes": self.lent_bytes(), "usable_bytes": self.usable_bytes(), "used_bytes": self.used_bytes(),
            "memory_nodes": memory, "compute_nodes": compute,
        });
        let more = json!({
            "spare_memory_nodes": health.spare, "spare_when_whole": health.spare_when_whole,
            "slabs_to_rebuild": health.slabs_to_rebuild, "lost_ranges": health.lost_ranges,
            "waiting_ranges": health.waiting_ranges,
            "rebuilding": state.rebuilds.iter().map(|rebuild| rebuild.memory).collect::<Vec<_>>(),
            "regenerating": state.regeneration.is_some(), "moving": state.migration.is_some(),
            "move": state.migration.map(|task| json!({ "from": task.from.node, "to": task.to.node })),
            "recovering_from": state.lost.keys().collect::<Vec<_>>(), "dead_compute_nodes": state.dead,
            "lost_pages": lost_pages.collect::<Vec<_>>(), "labels": state.labels,
        });
        if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
            object.extend(more);
        }
        object
    }

    fn memory_as_json(&self, index: usize, node: &Option<MemoryMember>) -> Value {
        let Some(node) = node else { return json!({ "node": index, "lives": false }) };
        let (peer, slabs) = (node.descriptor.peer, node.descriptor.ranges);
        json!({
            "node": index, "lives": self.lives(peer), "dead": node.dead, "domain": node.domain.to_string(),
            "leaves": node.stay == Residency::Leaving, "left": node.stay == Residency::Left,
            "lent_bytes": self.state.lent_bytes(peer.index()), "page_bytes": self.state.page_bytes_in(slabs),
            "used_bytes": self.used_on(peer.index()), "slabs": slabs, "slabs_used": self.state.slabs_on(peer.index()),
            "slabs_evicting": node.reclaim.evicting.len(), "slabs_withdrawn": node.reclaim.withdrawn.len(),
        })
    }

    /// The whole status, with the speed of a rebuild.
    fn text(&self, pool: &Place, rate: Option<f64>) -> String {
        let Self { state, health, .. } = self;
        let mut lines = vec![format!("pool {pool}: {}", headline(health, state, rate))];
        lines.extend(advice(health, state, pool).into_iter().map(|line| format!("  {line}")));
        lines.push(self.sizes());
        lines.push(self.kind());
        lines.extend(self.under_way());
        lines.push(self.table().to_string());
        let apart = self.apart();
        if !apart.is_empty() {
            lines.push(format!("in use no more: {}", apart.join(", ")));
        }
        let pages = state.lost_pages.len() + state.abandoned_pages.len();
        if pages > 0 {
            lines.push(format!("{}: --json lists their addresses", plural(pages, "lost page")));
        }
        lines.join("\n")
    }

    fn sizes(&self) -> String {
        if self.health.is_memory_gone() {
            return "memory: none, as all that was lent is gone".to_owned();
        }
        let (lent, usable) = (self.lent_bytes(), self.usable_bytes());
        let used = self.used_bytes().map_or("unknown".to_owned(), |used| {
            let share = 100.0 * used as f64 / usable.max(1) as f64;
            format!("{} ({share:.1} %)", units::bytes(used))
        });
        let (lent, usable) = (units::bytes(lent), units::bytes(usable));
        format!("memory: {lent} lent, {usable} of it usable for pages, {used} used")
    }

    fn kind(&self) -> String {
        let state = &self.state;
        let logs = match state.log_bytes {
            0 => "no logs in memory".to_owned(),
            size => format!("logs of {} in memory", units::bytes(size)),
        };
        let made = self.made_at.map_or(String::new(), |at| format!("made {}, ", date(at)));
        format!(
            "{made}id {:016x}, fabric {}, lease {}, cache lines of {} bytes, coding {}, {logs}",
            state.id,
            state.fabric,
            units::seconds(state.timing.lease),
            state.gcl_bytes,
            state.coding
        )
    }

    /// What moves.
    fn under_way(&self) -> Vec<String> {
        let state = &self.state;
        let bytes = units::bytes(state.slab_bytes());
        let moves = state.migration.map(|task| {
            let stage = match task.stage {
                MigrationStage::Clearing | MigrationStage::Copying => "being copied",
                _ => "nearly there",
            };
            format!(
                "a slab of {bytes} moves from mem{} to mem{}, {stage}",
                task.from.node, task.to.node
            )
        });
        let anew = state
            .regeneration
            .map(|task| format!("a slab of {bytes} is being rebuilt on mem{}", task.to.node));
        moves.into_iter().chain(anew).collect()
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header(["node", "state", "lends", "for pages", "used", "domain"]);
        let members: BTreeMap<u16, &MemoryMember> = self.members().collect();
        for (index, slot) in (0_u16..).zip(&self.state.memory_nodes) {
            let name = format!("mem{index}");
            match (slot, members.get(&index)) {
                (None, _) => table.add_row([name, "has not joined".to_owned()]),
                (Some(_), None) => continue,
                (Some(member), Some(_)) => table.add_row([
                    name,
                    self.state_of(index, member),
                    units::bytes(self.state.lent_bytes(index)),
                    units::bytes(self.state.page_bytes_in(member.descriptor.ranges)),
                    self.used_on(index).map_or("-".to_owned(), units::bytes),
                    member.domain.to_string(),
                ]),
            };
        }
        for index in self.state.compute_nodes.keys().filter(|node| !self.is_dead(**node)) {
            let lives = self.lives(PeerId::compute(*index));
            table.add_row([format!("cn{index}"), self.word(lives).to_owned()]);
        }
        for column in table.column_iter_mut().take(5).skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    /// Whether a compute node that is in the pool cannot come back: where memory is shared, it has
    /// no process any more. One that is silent otherwise may.
    fn is_dead(&self, compute_node: u16) -> bool {
        !self.lives(PeerId::compute(compute_node)) && !self.state.waits_for_silent()
    }

    /// What a node is, by whether it shows that it lives.
    fn word(&self, lives: bool) -> &'static str {
        if lives { "lives" } else { absent(&self.state) }
    }

    fn state_of(&self, node: u16, member: &MemoryMember) -> String {
        let lives = self.lives(PeerId::memory(node));
        let Reclaim { evicting, withdrawn, .. } = &member.reclaim;
        let mut all = vec![self.word(lives).to_owned()];
        if member.stay == Residency::Leaving {
            let slabs = plural(self.state.slabs_on(node), "slab");
            all.push(format!("leaves, {slabs} to be moved"));
        }
        if !evicting.is_empty() {
            all.push(format!("{} to be moved", plural(evicting.len(), "slab")));
        }
        if !withdrawn.is_empty() {
            all.push(format!("{} not lent", plural(withdrawn.len(), "slab")));
        }
        all.join(", ")
    }

    /// Nodes that died or left.
    fn apart(&self) -> Vec<String> {
        let state = &self.state;
        let memory = state.memory_nodes.iter().flatten().filter_map(|member| {
            let node = member.descriptor.peer.index();
            Some(format!("mem{node} ({})", self.why_apart(node, member)?))
        });
        let lost = state.lost.keys().map(|node| format!("cn{node} (died, being recovered from)"));
        let dead = state.dead.iter();
        let dead = dead.map(|node| format!("cn{node} (died, with pages that its log has)"));
        let gone = state.compute_nodes.keys().filter(|node| self.is_dead(**node));
        let gone = gone.map(|node| format!("cn{node} (dead: its process is gone)"));
        memory.chain(gone).chain(lost).chain(dead).collect()
    }

    /// Bytes of slabs that were rebuilt since an earlier look, a second.
    fn rate_since(&self, before: &Self, passed: Duration) -> f64 {
        let slabs = before.health.slabs_to_rebuild.saturating_sub(self.health.slabs_to_rebuild);
        (slabs as u64 * self.state.slab_bytes()) as f64 / passed.as_secs_f64()
    }
}

/// Shows a pool.
pub(super) async fn status(
    env: &Env,
    pool: &Place,
    credentials: Credentials,
    as_json: bool,
) -> Result<(), SharedPoolError> {
    let shared = SharedPool::at(pool, credentials)?;
    let mut look = Look::at(&shared).await?;
    if as_json {
        tell!("{}", look.as_json(pool));
        return Ok(());
    }
    let mut rate = None;
    if look.health.slabs_to_rebuild > 0 && look.health.has_place && look.health.working > 0 {
        let started = Instant::now();
        env.sleep(MEASURED).await;
        let later = Look::at(&shared).await?;
        rate = Some(later.rate_since(&look, started.elapsed()));
        look = later;
    }
    tell!("{}", look.text(pool, rate));
    Ok(())
}

/// Lists the pools of the calling user on this host.
pub(super) async fn list(as_json: bool) -> Result<(), SharedPoolError> {
    let names = SharedPool::names_on_this_host().unwrap_or_default();
    let mut looks = Vec::new();
    for name in names {
        let place = Place::Host { name: name.clone(), is_shm: false };
        let shared = SharedPool::at(&place, Credentials::default())?;
        let look = Look::at(&shared).await;
        // One that was removed meanwhile is none.
        if !matches!(look, Err(SharedPoolError::NoPool { .. })) {
            looks.push((name.to_string(), look));
        }
    }
    if as_json {
        let all = looks.iter().map(|(name, look)| summary_as_json(name, look));
        tell!("{}", Value::Array(all.collect()));
    } else if looks.is_empty() {
        tell!("no pools on this host: `selkie pool create NAME` makes one");
    } else {
        tell!("{}", summaries(&looks));
        for (name, look) in &looks {
            if let Err(error) = look {
                tell!("{name}: {error}");
            }
        }
    }
    Ok(())
}

type Looked = Result<Look, SharedPoolError>;

fn summary_as_json(name: &str, look: &Looked) -> Value {
    match look {
        Ok(look) => json!({
            "pool": name, "id": format!("{:016x}", look.state.id), "verdict": word(look.health.verdict()),
            "made_unix_s": look.made_at.and_then(seconds), "fabric": look.state.fabric,
            "coding": look.state.coding.to_string(), "memory_nodes": look.health.living,
            "compute_nodes": look.state.compute_nodes.len(), "lent_bytes": look.lent_bytes(),
            "usable_bytes": look.usable_bytes(), "used_bytes": look.used_bytes(),
        }),
        Err(error) => json!({ "pool": name, "error": error.to_string() }),
    }
}

fn summaries(looks: &[(String, Looked)]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    let header = ["pool", "state", "made", "fabric", "coding", "memory nodes", "compute nodes"];
    table.set_header([&header[..], &["usable", "used"]].concat());
    for (name, look) in looks {
        let look = match look {
            Ok(look) => look,
            Err(_) => {
                table.add_row([name.clone(), "cannot be read".to_owned()]);
                continue;
            }
        };
        let Look { state, health, made_at, .. } = look;
        let usable = match health.is_memory_gone() {
            true => "-".to_owned(),
            false => units::bytes(look.usable_bytes()),
        };
        table.add_row([
            name.clone(),
            word(health.verdict()).to_owned(),
            made_at.map_or("-".to_owned(), date),
            state.fabric.clone(),
            state.coding.to_string(),
            memory_nodes(health, state),
            state.compute_nodes.len().to_string(),
            usable,
            look.used_bytes().map_or("-".to_owned(), units::bytes),
        ]);
    }
    for column in table.column_iter_mut().skip(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// How many live, and which do not.
fn memory_nodes(health: &Health, state: &PoolState) -> String {
    let away: Vec<u16> = health.gone.iter().chain(&health.silent).copied().collect();
    match (health.verdict(), away.is_empty()) {
        (Verdict::Incomplete, _) => format!("{} of {}", health.living, state.memory_nodes.len()),
        (_, true) => health.living.to_string(),
        (_, false) => format!("{}, without {}", health.living, names("mem", &away)),
    }
}

fn seconds(at: SystemTime) -> Option<u64> {
    Some(at.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// A date as people read it.
pub(super) fn date(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at);
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", at.hour(), at.minute())
}
