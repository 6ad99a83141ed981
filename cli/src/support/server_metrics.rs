//! What a server of SQL clients has done, for Prometheus.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use selkie_server::ServerCounts;

/// Reads the counters of a server when it is asked.
pub(crate) struct OfServer(pub(crate) ServerCounts);

impl fmt::Debug for OfServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OfServer")
    }
}

impl Collector for OfServer {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counters = self.0.read();
        let help = "Clients that are connected";
        encoder
            .encode_descriptor("selkie_sql_clients_open", help, None, MetricType::Gauge)?
            .encode_gauge(&counters.clients_open)?;
        let counts = [
            ("selkie_sql_clients", "Clients that were let in", counters.clients),
            ("selkie_sql_statements", "Texts and portals that were run", counters.statements),
        ];
        for (name, help, count) in counts {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        let (help, unit) = ("How long these took together", Some(&Unit::Seconds));
        encoder
            .encode_descriptor("selkie_sql_statement_time", help, unit, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&counters.statement_time.as_secs_f64(), None)?;
        let help = "Errors that clients were told";
        let mut errors =
            encoder.encode_descriptor("selkie_sql_errors", help, None, MetricType::Counter)?;
        for (state, count) in &counters.errors {
            errors
                .encode_family(&[("sqlstate", *state)])?
                .encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        Ok(())
    }
}
