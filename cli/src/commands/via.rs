//! How workers of `selkie tpcc` and `selkie ycsb` run SQL: in sessions of the process, or over the
//! wire.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clap::ValueEnum;
use parking_lot::Mutex;
use selkie::fabric::BoxFuture;
use selkie::sql::clock;
use selkie::txn::{Database, Protocol};
use selkie_server::{Clear, Server, ServerConfig};
use selkie_sql::{Datum, PlanCache, Prepared, Session, SqlError};
use selkie_tpcc::{SqlConnection, SqlConnector, SqlRow, SqlValue, StatementText, TpccError, Via};
use tokio::runtime::Runtime;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row, Statement};

/// How workers of `selkie tpcc` run transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViaArgument {
    /// By calls of the database
    #[default]
    Native,
    /// By SQL in sessions of the process
    Sql,
    /// By SQL of PostgreSQL's clients, over loopback, from servers of the process: one for each
    /// compute node
    Wire,
}

impl ViaArgument {
    /// The concurrency control that is meant if none is said.
    pub(crate) fn protocol(self) -> Protocol {
        match self {
            Self::Native => Protocol::TwoPhase,
            Self::Sql | Self::Wire => Protocol::Snapshot,
        }
    }

    /// What makes the connections of the workers. For `wire` it starts a thread for the clients.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn connector(self) -> Result<Via, TpccError> {
        Ok(match self {
            Self::Native => Via::Native,
            Self::Sql => Via::Sql(in_process()),
            Self::Wire => Via::Sql(Arc::new(OverWire::start()?)),
        })
    }
}

/// What makes connections of sessions in the process.
pub(super) fn in_process() -> Arc<dyn SqlConnector> {
    Arc::new(InProcess::default())
}

/// The same for each node, which is told by its number.
struct PerNode<T>(Mutex<Vec<(usize, Arc<T>)>>);

impl<T> Default for PerNode<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> PerNode<T> {
    fn get(&self, node: usize) -> Option<Arc<T>> {
        self.0.lock().iter().find(|(own, _)| *own == node).map(|(_, value)| Arc::clone(value))
    }

    /// What is there already stays.
    fn put(&self, node: usize, value: T) -> Arc<T> {
        let mut all = self.0.lock();
        if let Some((_, there)) = all.iter().find(|(own, _)| *own == node) {
            return Arc::clone(there);
        }
        let value = Arc::new(value);
        all.push((node, Arc::clone(&value)));
        value
    }
}

fn number(database: &Database) -> usize {
    database.engine().node().index()
}

/// The error of a statement.
fn of_sql(error: &SqlError) -> TpccError {
    let message = match error.detail_text() {
        Some(detail) => format!("{}: {detail}", error.message()),
        None => error.message().to_owned(),
    };
    TpccError::Sql { state: error.state().code().to_owned(), message }
}

/// Sessions that share the plans of their node.
#[derive(Default)]
struct InProcess {
    plans: PerNode<PlanCache>,
}

impl SqlConnector for InProcess {
    fn name(&self) -> &'static str {
        "sql"
    }

    fn connect<'a>(
        &'a self,
        database: &'a Database,
    ) -> BoxFuture<'a, Result<Box<dyn SqlConnection>, TpccError>> {
        Box::pin(async move {
            let node = number(database);
            let plans = self.plans.put(node, PlanCache::default());
            let session = Session::new(database, "tpcc", clock).map_err(|error| of_sql(&error))?;
            let (session, prepared) = (session.with_plans(&plans), Vec::new());
            let own = tokio::sync::Mutex::new(InSession { session, prepared });
            Ok(Box::new(OfSession(own)) as Box<dyn SqlConnection>)
        })
    }
}

/// A session, with the statements that it has prepared, by their numbers.
struct InSession {
    session: Session,
    prepared: Vec<Option<Prepared>>,
}

impl InSession {
    async fn run(
        &mut self,
        statement: &dyn StatementText,
        values: &[SqlValue],
    ) -> Result<Vec<SqlRow>, SqlError> {
        let number = statement.number();
        let known = self.prepared.get(number).cloned().flatten();
        let prepared = match known {
            Some(prepared) => prepared,
            None => {
                let prepared = self.session.prepare(&statement.text(), &[]).await?;
                keep(&mut self.prepared, number, prepared.clone());
                prepared
            }
        };
        let types = prepared.parameters().iter().map(|ty| ty.oid());
        let parameters = values.iter().zip(types).map(|(value, oid)| datum(value, oid)).collect();
        let outcome = self.session.run_prepared(&prepared, parameters).await?;
        let rows = outcome.map(|outcome| outcome.rows).unwrap_or_default();
        Ok(rows.iter().map(|row| row.iter().map(value_of).collect()).collect())
    }
}

/// One statement runs at a time.
struct OfSession(tokio::sync::Mutex<InSession>);

impl SqlConnection for OfSession {
    fn run<'a>(
        &'a self,
        statement: &'a dyn StatementText,
        values: &'a [SqlValue],
    ) -> BoxFuture<'a, Result<Vec<SqlRow>, TpccError>> {
        Box::pin(async move {
            self.0.lock().await.run(statement, values).await.map_err(|error| of_sql(&error))
        })
    }
}

/// Keeps what was prepared under its number.
fn keep<T: Clone>(prepared: &mut Vec<Option<T>>, number: usize, value: T) {
    if prepared.len() <= number {
        prepared.resize(number + 1, None);
    }
    prepared.get_mut(number).into_iter().for_each(|place| *place = Some(value.clone()));
}

/// A value of a parameter of this type.
fn datum(value: &SqlValue, oid: u32) -> Datum {
    match value {
        SqlValue::Null => Datum::Null,
        // What does not fit is no number of TPC-C.
        SqlValue::Int(value) if oid == Type::INT4.oid() => {
            Datum::I32(i32::try_from(*value).unwrap_or(i32::MAX))
        }
        SqlValue::Int(value) => Datum::I64(*value),
        SqlValue::Text(text) => Datum::text(text.as_str()),
    }
}

fn value_of(datum: &Datum) -> SqlValue {
    match datum {
        Datum::I16(value) => SqlValue::Int((*value).into()),
        Datum::I32(value) => SqlValue::Int((*value).into()),
        Datum::I64(value) => SqlValue::Int(*value),
        Datum::Text(text) => SqlValue::Text(text.to_string()),
        _ => SqlValue::Null,
    }
}

/// Clients of a server on loopback of each node.
struct OverWire {
    servers: PerNode<Server>,
    /// Where the connections of the clients are driven. `None` once it is being dropped.
    runtime: Option<Runtime>,
}

impl OverWire {
    fn start() -> Result<Self, TpccError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("selkie-clients")
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| no_client(&error))?;
        Ok(Self { servers: PerNode::default(), runtime: Some(runtime) })
    }

    /// The server of a node.
    async fn server(&self, database: &Database) -> Result<Arc<Server>, TpccError> {
        let node = number(database);
        if let Some(server) = self.servers.get(node) {
            return Ok(server);
        }
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let max_connections = usize::from(u16::MAX);
        let config = ServerConfig {
            listen,
            tls: None,
            clear: Clear::Local,
            max_connections,
            client_memory_bytes: None,
            clock,
        };
        let server = Server::start(database, &config).await.map_err(|error| no_client(&error))?;
        // Of several workers that have started one the first has been faster.
        Ok(self.servers.put(node, server))
    }

    /// Runs a future where input and output are driven.
    async fn there<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, TpccError> {
        let gone = "the threads of the clients have ended";
        let runtime = self.runtime.as_ref().ok_or_else(|| no_client(&gone))?;
        runtime.spawn(future).await.map_err(|error| no_client(&error))
    }
}

impl Drop for OverWire {
    fn drop(&mut self) {
        // Without waiting: this may be a task itself.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

fn no_client(error: &dyn std::fmt::Display) -> TpccError {
    TpccError::Sql { state: "08001".to_owned(), message: format!("no connection: {error}") }
}

impl SqlConnector for OverWire {
    fn name(&self) -> &'static str {
        "wire"
    }

    fn connect<'a>(
        &'a self,
        database: &'a Database,
    ) -> BoxFuture<'a, Result<Box<dyn SqlConnection>, TpccError>> {
        Box::pin(async move {
            let server = self.server(database).await?;
            let port = server.addr().port();
            let connected = self.there(async move {
                let mut config = tokio_postgres::Config::new();
                config.host("127.0.0.1").port(port).user("tpcc").dbname("selkie");
                let (client, connection) = config.connect(NoTls).await?;
                // The next statement of the client fails with why it ended.
                drop(tokio::spawn(connection));
                Ok::<_, tokio_postgres::Error>(client)
            });
            let client = connected.await?.map_err(|error| of_wire(&error))?;
            let statements = Mutex::default();
            Ok(Box::new(OfClient { client, statements, _server: server }) as Box<dyn SqlConnection>)
        })
    }
}

/// A client, with the statements that it has prepared, by their numbers.
struct OfClient {
    client: Client,
    statements: Mutex<Vec<Option<Statement>>>,
    /// Serves as long as it has clients.
    _server: Arc<Server>,
}

impl OfClient {
    async fn run(
        &self,
        statement: &dyn StatementText,
        values: &[SqlValue],
    ) -> Result<Vec<SqlRow>, tokio_postgres::Error> {
        if statement.is_control() {
            return self.client.batch_execute(&statement.text()).await.map(|()| Vec::new());
        }
        let number = statement.number();
        let known = self.statements.lock().get(number).cloned().flatten();
        let prepared = match known {
            Some(prepared) => prepared,
            None => {
                let prepared = self.client.prepare(&statement.text()).await?;
                keep(&mut self.statements.lock(), number, prepared.clone());
                prepared
            }
        };
        let parameters: Vec<Box<dyn ToSql + Sync + Send>> =
            values.iter().zip(prepared.params()).map(|(value, ty)| parameter(value, ty)).collect();
        let parameters: Vec<&(dyn ToSql + Sync)> =
            parameters.iter().map(|own| &**own as &(dyn ToSql + Sync)).collect();
        self.client.query(&prepared, &parameters).await?.iter().map(values_of).collect()
    }
}

impl SqlConnection for OfClient {
    fn run<'a>(
        &'a self,
        statement: &'a dyn StatementText,
        values: &'a [SqlValue],
    ) -> BoxFuture<'a, Result<Vec<SqlRow>, TpccError>> {
        Box::pin(async move {
            Self::run(self, statement, values).await.map_err(|error| of_wire(&error))
        })
    }
}

fn of_wire(error: &tokio_postgres::Error) -> TpccError {
    match error.as_db_error() {
        Some(own) => TpccError::Sql {
            state: own.code().code().to_owned(),
            message: own.message().to_owned(),
        },
        None => TpccError::Sql { state: "08006".to_owned(), message: error.to_string() },
    }
}

fn parameter(value: &SqlValue, ty: &Type) -> Box<dyn ToSql + Sync + Send> {
    match value {
        SqlValue::Null => Box::new(None::<i32>),
        // What does not fit is no number of TPC-C.
        SqlValue::Int(value) if *ty == Type::INT4 => {
            Box::new(i32::try_from(*value).unwrap_or(i32::MAX))
        }
        SqlValue::Int(value) => Box::new(*value),
        SqlValue::Text(text) => Box::new(text.clone()),
    }
}

fn values_of(row: &Row) -> Result<SqlRow, tokio_postgres::Error> {
    let values = row.columns().iter().enumerate().map(|(at, column)| {
        Ok(match *column.type_() {
            Type::INT4 => row.try_get::<_, Option<i32>>(at)?.map(|own| SqlValue::Int(own.into())),
            Type::INT8 => row.try_get::<_, Option<i64>>(at)?.map(SqlValue::Int),
            _ => row.try_get::<_, Option<String>>(at)?.map(SqlValue::Text),
        }
        .unwrap_or(SqlValue::Null))
    });
    values.collect()
}
