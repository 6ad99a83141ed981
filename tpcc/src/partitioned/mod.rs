//! TPC-C on a partitioned database: each warehouse belongs to a compute node, which has tables of
//! its own for its warehouses, and what a transaction needs of another node's it asks that node for
//! (see [`selkie_txn::partition`]).
//!
//! Of the five transactions two go beyond the home warehouse: NewOrder, whose lines may be supplied
//! by others, and Payment, whose customer may belong to another. The items, which nobody changes,
//! are in one table that all nodes cache.
//!
//! What goes elsewhere goes first, a request to each node that is involved, at the same time: its
//! latches are held for longer then, but no latch at home is held while messages are on their way.
//! `request` has the bytes.

mod procedures;
mod request;

use std::sync::Arc;

use selkie_txn::partition::{DistributedTxn, Member, Partition};
use smallvec::SmallVec;

use crate::cluster::Node;
use crate::config::owner_of;
use crate::error::TpccError;
use crate::input::{NewOrderInput, PaymentInput, UNUSED_ITEM};
use crate::network::Network;
use crate::schema::Tables;
use crate::transactions::{
    NewOrderOutput, PaymentOutput, Session, Supplied, book, enter_order, pay,
};
pub(crate) use procedures::Branch;
use request::{Request, StockLine, paid, stock_taken};

/// Connects the nodes of a partitioned database, in the order of their indexes.
pub(crate) fn connect(
    nodes: &[Arc<Node>],
    network: &Network,
) -> Result<Vec<Partition<Branch>>, TpccError> {
    let mut members = Vec::with_capacity(nodes.len());
    for node in nodes {
        let ledger = node.tables.ledger.ok_or_else(|| TpccError::Missing {
            table: "two_phase_commit",
            key: format!("{} has none: the database is not partitioned", node.engine.node()),
        })?;
        let db = node.db.clone();
        let procedures = Branch::new(db.clone(), node.tables, network.access_time());
        members.push(Member { db, ledger, procedures });
    }
    Ok(Partition::connect(members)?)
}

/// The node to which a warehouse, one of so many, belongs, where warehouses belong to nodes; else
/// any of them.
pub(crate) fn home_of<'n>(
    nodes: &'n [Arc<Node<Tables>>],
    node: &'n Arc<Node<Tables>>,
    (warehouse, warehouses): (i32, i32),
) -> &'n Arc<Node<Tables>> {
    let owner = || nodes.get(owner_of(warehouse, warehouses, nodes.len()));
    node.tables.ledger.and_then(|_| owner()).unwrap_or(node)
}

/// A worker's way to the partitions.
pub(crate) struct Route {
    pub(crate) partition: Partition<Branch>,
    /// The partition's number, and how many there are.
    pub(crate) own: usize,
    pub(crate) nodes: usize,
    pub(crate) warehouses: i32,
    /// Number of the worker in the partition.
    pub(crate) worker: u32,
}

impl Route {
    /// The partition that a warehouse belongs to, if it is another.
    fn elsewhere(&self, warehouse: i32) -> Option<usize> {
        let owner = owner_of(warehouse, self.warehouses, self.nodes);
        (owner != self.own).then_some(owner)
    }

    /// [`new_order`](crate::transactions::new_order) across partitions.
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

    /// Takes what lines have from other partitions; by line, `None` for those of the own.
    async fn take_stock(
        &self,
        txn: &mut DistributedTxn<'_, Branch>,
        input: &NewOrderInput,
    ) -> Result<Supplied, TpccError> {
        let mut supplied: Supplied = input.lines.iter().map(|_| None).collect();
        // By partition: which lines.
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
            (*owner, Request::TakeStock { district: input.district, lines }.encode())
        };
        let requests: Vec<_> = asked.iter().map(request).collect();
        let answers = txn.call(&requests).await?;
        for ((_, lines), answer) in asked.iter().zip(&answers) {
            for (at, taken) in lines.iter().zip(stock_taken(answer)?) {
                if let Some(place) = supplied.get_mut(*at) {
                    *place = Some(taken);
                }
            }
        }
        Ok(supplied)
    }

    /// [`payment`](crate::transactions::payment) across partitions.
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
                let request = Request::Pay(input.clone()).encode();
                let answers = txn.call(&[(owner, request)]).await?;
                paid(answers.first().map_or(&[][..], |answer| answer))?
            }
        };
        let output = book(session, txn.own()?, &mut rows, (input, output), now).await?;
        session.put_rows(rows);
        txn.commit().await?;
        Ok(output)
    }
}
