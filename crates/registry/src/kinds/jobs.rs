//! Jobs and CronJobs: where their pods are, and a warning that the pods of a deleted job stay.

use machinery::json::Value;
use machinery::options::DeleteOptions;

use super::{KindBehaviour, object_at};
use crate::request::Context;

pub(super) struct Jobs;

impl KindBehaviour for Jobs {
    fn pod_template<'v>(&self, job: &'v Value) -> Option<&'v Value> {
        object_at(job, &["spec", "template"])
    }

    fn warn_of_deletion(&self, options: &DeleteOptions, ctx: &Context) {
        if options.propagation.is_none() && options.orphan_dependents.is_none() {
            ctx.warnings.push(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove \
                 them or set propagationPolicy=Orphan to suppress this warning",
            );
        }
    }
}

pub(super) struct CronJobs;

impl KindBehaviour for CronJobs {
    fn pod_template<'v>(&self, job: &'v Value) -> Option<&'v Value> {
        object_at(job, &["spec", "jobTemplate", "spec", "template"])
    }
}
