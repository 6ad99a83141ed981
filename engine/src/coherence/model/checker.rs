//! The checker's view of a model: first states, next steps, properties.

use std::sync::atomic::Ordering;

use stateright::{Model, Property};

use super::properties;
use super::protocol::{ModelStep, ProtocolModel};
use super::world::{ModelWorld, StoredWorld};

impl<const N: usize> Model for ProtocolModel<N> {
    type State = StoredWorld<N>;
    type Action = ModelStep<N>;

    fn init_states(&self) -> Vec<StoredWorld<N>> {
        let class = |node| {
            let mortal = if self.mortal && node == Self::MORTAL { 100 } else { 0 };
            mortal + if self.symmetric { self.callers[node] as u8 } else { node as u8 }
        };
        vec![Box::new(ModelWorld::new(std::array::from_fn(class)))]
    }

    fn actions(&self, world: &StoredWorld<N>, out: &mut Vec<ModelStep<N>>) {
        if self.homeless && !world.home_lost {
            self.with_home.fetch_add(1, Ordering::Relaxed);
        }
        if world.fault.is_some() {
            return;
        }
        self.death(world, out);
        self.home_loss(world, out);
        self.splits(world, out);
        for node in 0..N {
            self.system(world, node, out);
            let others = (0..N).filter(|from| *from != node);
            if Self::runs(world, node) {
                self.application(world, node, out);
                others.for_each(|from| self.mail(world, node, from, out));
            } else if Self::takes_mail(world, node) {
                others.for_each(|from| self.refuse_mail(world, node, from, out));
            }
        }
    }

    fn next_state(&self, _: &Self::State, step: ModelStep<N>) -> Option<Self::State> {
        Some(step.after)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = properties::safety();
        if !self.published() {
            all.extend(properties::answers_and_rest());
        }
        all
    }
}
