//! A worker's route to the partitions: the owner of a warehouse, and the requests to it.

use std::sync::Arc;

use selkie_txn::partition::{DistributedTxn, Member, Partition};
use smallvec::SmallVec;

use super::procedures::PartitionProcedures;
use super::request::{PartitionRequest, StockLine, paid, stock_taken};
use crate::cluster::Network;
use crate::error::TpccError;
use crate::tpcc::affinity::owner_of;
use crate::tpcc::input::{NewOrderInput, PaymentInput, UNUSED_ITEM};
use crate::tpcc::nodes::TpccNode;
use crate::tpcc::transactions::{
    NewOrderOutput, PaymentOutput, Session, Supplied, book, enter_order, pay,
};

/// Connects the nodes of a partitioned database, in the order of their indexes.
pub(crate) fn connect(
    nodes: &[Arc<TpccNode>],
    network: &Network,
) -> Result<Vec<Partition<PartitionProcedures>>, TpccError> {
    let mut members = Vec::with_capacity(nodes.len());
    for node in nodes {
        let ledger = node.tables.ledger.ok_or_else(|| TpccError::Missing {
            table: "two_phase_commit",
            key: format!("{} has none: the database is not partitioned", node.engine.node()),
        })?;
        let db = node.db.clone();
        let procedures = PartitionProcedures::new(db.clone(), node.tables, network.access_time());
        members.push(Member { db, ledger, procedures });
    }
    Ok(Partition::connect(members)?)
}

/// The node that owns a warehouse, if the database is partitioned; else `node`.
pub(crate) fn home_of<'n>(
    nodes: &'n [Arc<TpccNode>],
    node: &'n Arc<TpccNode>,
    (warehouse, warehouses): (i32, i32),
) -> &'n Arc<TpccNode> {
    let owner = || nodes.get(owner_of(warehouse, warehouses, nodes.len()));
    node.tables.ledger.and_then(|_| owner()).unwrap_or(node)
}

/// A worker's route to the partitions.
pub(crate) struct PartitionRoute {
    pub(crate) partition: Partition<PartitionProcedures>,
    /// The partition's number, and how many there are.
    pub(crate) own: usize,
    pub(crate) nodes: usize,
    pub(crate) warehouses: i32,
    /// Number of the worker in the partition.
    pub(crate) worker: u32,
}

impl PartitionRoute {
    /// The partition that a warehouse belongs to, if it is another.
    fn elsewhere(&self, warehouse: i32) -> Option<usize> {
        let owner = owner_of(warehouse, self.warehouses, self.nodes);
        (owner != self.own).then_some(owner)
    }

    /// [`new_order`](crate::tpcc::transactions::new_order) across partitions.
    pub(crate) async fn new_order(
        &self,
        session: &Session<'_>,
        input: &NewOrderInput,
        now: i64,
    ) -> Result<NewOrderOutput, TpccError> {
        let mut rows = session.take_rows()?;
        let mut txn = self.partition.begin(self.worker);
        let supplied = self.take_stock(&mut txn, input).await?;
        let output = enter_order(session, txn.own()?, &mut rows, (input, &supplied), now).await?;
        session.put_rows(rows);
        match output.order {
            Some(_) => txn.commit().await?,
            None => txn.rollback().await,
        }
        Ok(output)
    }

    /// Takes stock from other partitions. By line; `None` for lines of the own partition.
    async fn take_stock(
        &self,
        txn: &mut DistributedTxn<'_, PartitionProcedures>,
        input: &NewOrderInput,
    ) -> Result<Supplied, TpccError> {
        let mut supplied: Supplied = input.lines.iter().map(|_| None).collect();
        // The lines of each partition.
        let mut asked: SmallVec<[(usize, SmallVec<[usize; 4]>); 4]> = SmallVec::new();
        for (at, line) in input.lines.iter().enumerate() {
            let Some(owner) = self.elsewhere(line.supply_warehouse) else { continue };
            if line.item == UNUSED_ITEM {
                continue;
            }
            match asked.iter_mut().find(|(asked, _)| *asked == owner) {
                Some((_, lines)) => lines.push(at),
                None => asked.push((owner, SmallVec::from_slice(&[at]))),
            }
        }
        if asked.is_empty() {
            return Ok(supplied);
        }
        let request = |(owner, lines): &(usize, SmallVec<[usize; 4]>)| {
            let lines = lines.iter().filter_map(|at| input.lines.get(*at));
            let lines = lines.map(StockLine::new).collect();
            (*owner, PartitionRequest::TakeStock { district: input.district, lines }.encode())
        };
        let requests: Vec<_> = asked.iter().map(request).collect();
        let answers = txn.call(&requests).await?;
        if answers.len() != asked.len() {
            return Err(TpccError::DamagedMessage);
        }
        for ((_, lines), answer) in asked.iter().zip(&answers) {
            let all_taken = stock_taken(answer)?;
            if all_taken.len() != lines.len() {
                return Err(TpccError::DamagedMessage);
            }
            for (at, taken) in lines.iter().zip(all_taken) {
                if let Some(place) = supplied.get_mut(*at) {
                    *place = Some(taken);
                }
            }
        }
        Ok(supplied)
    }

    /// [`payment`](crate::tpcc::transactions::payment) across partitions.
    pub(crate) async fn payment(
        &self,
        session: &Session<'_>,
        input: &PaymentInput,
        now: i64,
    ) -> Result<PaymentOutput, TpccError> {
        let mut rows = session.take_rows()?;
        let mut txn = self.partition.begin(self.worker);
        let output = match self.elsewhere(input.customer_warehouse) {
            None => pay(session, txn.own()?, input).await?,
            Some(owner) => {
                let request = PartitionRequest::Pay(input.clone()).encode();
                let answers = txn.call(&[(owner, request)]).await?;
                paid(answers.first().ok_or(TpccError::DamagedMessage)?)?
            }
        };
        let output = book(session, txn.own()?, &mut rows, (input, output), now).await?;
        session.put_rows(rows);
        txn.commit().await?;
        Ok(output)
    }
}
