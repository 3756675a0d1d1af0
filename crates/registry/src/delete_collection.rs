//! Every object a selector picks, deleted one by one.

use machinery::Status;
use machinery::options::{DeleteOptions, ListOptions};

use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::view::ListView;

impl Registry {
    /// Not atomic: the first refusal ends it, and what was deleted before stays deleted. Answers with the objects as
    /// they were listed.
    pub async fn delete_collection(
        &self,
        target: &Target,
        list: &ListOptions,
        options: DeleteOptions,
        ctx: &Context,
    ) -> Result<ListView, Status> {
        let listed = self.list(target, list).await?;
        for item in &listed.items {
            match self.delete(&Target::of_item(&target.kind, item), options.clone(), ctx).await {
                Ok(_) => {}
                // Another request deleted it first.
                Err(status) if status.is_not_found() => {}
                Err(status) => return Err(status),
            }
        }
        Ok(listed)
    }
}
