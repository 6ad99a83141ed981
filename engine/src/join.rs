//! Waiting for several futures at once.

use std::task::Poll;

/// Waits for all of some futures; their outputs in their order.
pub(crate) async fn all_of<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut under_way: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        for (future, output) in under_way.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(done) = future.as_mut().poll(cx) {
                *output = Some(done);
            }
        }
        let is_over = under_way.iter().all(|(_, output)| output.is_some());
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    under_way.into_iter().filter_map(|(_, output)| output).collect()
}

/// Waits for the first of two futures.
pub(crate) async fn either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let mut a = std::pin::pin!(a);
    let mut b = std::pin::pin!(b);
    std::future::poll_fn(|cx| {
        if a.as_mut().poll(cx).is_ready() || b.as_mut().poll(cx).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
