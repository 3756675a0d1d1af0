//! Every object a selector picks, deleted one by one.

use std::sync::Arc;

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
            let one = Target {
                kind: Arc::clone(&target.kind),
                namespace: Some(item.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
                name: Some(item.name().to_owned()),
                subresource: None,
            };
            match self.delete(&one, options.clone(), ctx).await {
                Ok(_) => {}
                // Somebody else was quicker.
                Err(status) if status.code == 404 => {}
                Err(status) => return Err(status),
            }
        }
        Ok(listed)
    }
}
