//! One object, as fresh as asked for.

use machinery::Status;
use machinery::options::{GetMode, GetOptions};

use crate::registry::Registry;
use crate::request::Target;
use crate::subresources;
use crate::view::View;

impl Registry {
    pub async fn get(&self, target: &Target, options: &GetOptions) -> Result<View, Status> {
        match options.mode()? {
            GetMode::Fresh => {
                self.storage().fresh().await?;
            }
            GetMode::Any => {}
            GetMode::NotOlderThan(revision) => {
                self.reach(revision).await?;
            }
        }
        let key = self.key(target)?;
        let item = self.collection(&target.kind).get(&key);
        let item = item.ok_or_else(|| Status::not_found(&target.gr(), target.name()))?;
        self.converter().prepare(&target.kind, std::slice::from_ref(&item)).await?;
        subresources::show(target, item)
    }
}
