//! A server with a protocol of its own on one embedded database: lines over TCP.
//!
//! ```text
//! SET key value   ->  OK                     ADD key number  ->  the sum, as number
//! GET key         ->  =value, or NONE        QUIT            ->  the end
//! ```
//! Each client has a connection of its own; what is wrong is answered with `ERROR` and a line.
//!
//! ```text
//! cargo run -p selkie --example line_server
//! ```

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use selkie::sql::{Connection, Isolation, QueryError, TransactionOptions};
use selkie::{SqlDatabase, block_on};

/// Clients that are served at once.
const MOST_CLIENTS: usize = 8;
/// Bytes of a line.
const LONGEST_LINE: u64 = 4 << 10;
/// For how long a client may say nothing.
const IDLE: Duration = Duration::from_secs(30);

/// Between two looks for a client, or for the end.
const PAUSE: Duration = Duration::from_millis(5);

/// Serves until it is told to end. The listener does not block: nothing but `ends` is needed then.
fn serve(db: &SqlDatabase, listener: &TcpListener, ends: &AtomicBool) {
    let clients = AtomicUsize::new(0);
    thread::scope(|scope| {
        while !ends.load(Ordering::Relaxed) {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // A client that was gone at once, or no descriptor left: the others go on.
                    if error.kind() != io::ErrorKind::WouldBlock {
                        eprintln!("no client: {error}");
                    }
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            if clients.fetch_add(1, Ordering::Relaxed) >= MOST_CLIENTS {
                clients.fetch_sub(1, Ordering::Relaxed);
                // It is gone already, or reads why.
                let _ = writeln!(stream, "ERROR too many clients");
                continue;
            }
            let clients = &clients;
            scope.spawn(move || {
                if let Err(error) = client(db, &stream) {
                    eprintln!("a client: {error}");
                }
                clients.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

/// Answers the lines of a client.
fn client(db: &SqlDatabase, mut stream: &TcpStream) -> Result<(), Box<dyn Error>> {
    // Some systems have it from the listener.
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(IDLE))?;
    let (mut conn, mut lines) = (db.connect()?, BufReader::new(stream));
    loop {
        let mut line = String::new();
        lines.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
        if !line.ends_with('\n') || line.trim() == "QUIT" {
            return Ok(());
        }
        let answer = match block_on(answer(&mut conn, line.trim_end())) {
            Ok(answer) => answer,
            Err(error) => format!("ERROR {} {error}", error.state()),
        };
        // What SQL says may have lines of its own.
        writeln!(stream, "{}", answer.replace('\n', " "))?;
    }
}

async fn answer(conn: &mut Connection, line: &str) -> Result<String, QueryError> {
    let words: Vec<&str> = line.splitn(3, ' ').collect();
    match *words.as_slice() {
        ["SET", key, value] => {
            let set = "insert into pair values ($1, $2) on conflict (key) do update set value = $2";
            conn.execute(set, &[&key, &value]).await?;
            Ok("OK".to_owned())
        }
        ["GET", key] => {
            let get = "select value from pair where key = $1";
            let found = conn.query_opt::<(String,)>(get, &[&key]).await?;
            Ok(found.map_or("NONE".to_owned(), |(value,)| format!("={value}")))
        }
        ["ADD", key, number] => {
            // Of two clients that read the same sum, one is run again.
            let kind = TransactionOptions::new().isolation(Isolation::Serializable);
            conn.transaction_with(kind, async |txn| add(txn, key, number).await).await
        }
        _ => Ok("ERROR SET key value, GET key, ADD key number or QUIT".to_owned()),
    }
}

/// Adds to a number, in a transaction.
async fn add(txn: &mut Connection, key: &str, number: &str) -> Result<String, QueryError> {
    let get = "select value::bigint from pair where key = $1";
    let now = txn.query_opt::<(i64,)>(get, &[&key]).await?.map_or(0, |(value,)| value);
    let set = "insert into pair values ($1, $2::bigint + $3::bigint)
        on conflict (key) do update set value = excluded.value returning value";
    Ok(txn.query_one::<(String,)>(set, &[&key, &now, &number]).await?.0)
}

/// Runs the server with some clients.
///
/// # Errors
/// What the pool, a statement or a socket reports.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let db = block_on(SqlDatabase::open("embedded:"))?;
    let mut conn = db.connect()?;
    block_on(conn.batch("create table pair (key text primary key, value text not null)"))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let (address, ends) = (listener.local_addr()?, AtomicBool::new(false));
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&db, &listener, &ends));
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| count(address))).collect();
        let over = |client: ScopedJoinHandle<_>| client.join().unwrap_or_else(|_| Err(panicked()));
        let counted = clients.into_iter().try_for_each(over);
        ends.store(true, Ordering::Relaxed);
        server.join().map_err(|_| panicked())?;
        counted
    })?;
    let sum = "select value from pair where key = 'sum'";
    assert_eq!(block_on(conn.query_one::<(String,)>(sum, &[]))?.0, "40");
    drop(conn);
    block_on(db.close())?;
    Ok(())
}

fn panicked() -> io::Error {
    io::Error::other("a thread has panicked")
}

/// A client that counts to ten, beside others, and does something that the server refuses.
fn count(address: SocketAddr) -> Result<(), io::Error> {
    let mut stream = TcpStream::connect(address)?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut say = |text: &str| {
        writeln!(stream, "{text}")?;
        lines.next().unwrap_or(Err(io::ErrorKind::UnexpectedEof.into()))
    };
    for _ in 0..10 {
        let sum = say("ADD sum 1")?;
        assert!(sum.parse::<u32>().is_ok(), "{sum}");
    }
    assert_eq!(say("SET name Ann B.")?, "OK");
    assert_eq!(say("GET name")?, "=Ann B.");
    assert_eq!(say("GET nothing")?, "NONE");
    assert!(say("ADD name 1")?.starts_with("ERROR 22P02"));
    assert!(say("DROP")?.starts_with("ERROR"));
    Ok(())
}
