//! The scenarios.
//!
//! - `requests`: create, get, patch
//! - `access`: gets by users with few and many bindings
//! - `admission`: creates with and without policies
//! - `definitions`: CustomResourceDefinitions and their objects
//! - `fairness`: gets of one client while another one floods the server with lists
//! - `list`: a whole collection, with each kind of list request
//! - `fanout`: one write to many watchers; watchers that do not match; watchers that do not read
//! - `idle`: the cost of an idle watcher
//! - `informers`: many clients that request all objects at once, by list or by stream
//! - `start`: time until a server is ready; and a restart under watchers
//! - `storing`: the embedded store alone
//! - `scale`: simulated nodes, deployments, and the time until every pod runs
//! - `worlds`: forks, empty worlds, and rewinds

mod access;
mod admission;
mod definitions;
mod fairness;
mod fanout;
mod idle;
mod informers;
mod list;
mod requests;
mod scale;
mod start;
mod storing;
mod worlds;

use crate::stage::Stage;
use crate::trouble::Trouble;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    Start,
    Store,
    Create,
    Get,
    Patch,
    List,
    WatchList,
    RelistStorm,
    Fanout,
    FanoutSelective,
    SlowWatchers,
    IdleWatchers,
    Restart,
    Scale,
    Crds,
    Access,
    Admission,
    Fairness,
    Worlds,
}

impl Scenario {
    /// In the order in which `all` runs them: later ones use the objects of earlier ones.
    pub const ALL: [Scenario; 19] = [
        Scenario::Start,
        Scenario::Store,
        Scenario::Create,
        Scenario::Get,
        Scenario::Patch,
        Scenario::List,
        Scenario::WatchList,
        Scenario::RelistStorm,
        Scenario::Fanout,
        Scenario::FanoutSelective,
        Scenario::SlowWatchers,
        Scenario::IdleWatchers,
        Scenario::Restart,
        Scenario::Scale,
        Scenario::Crds,
        Scenario::Access,
        Scenario::Admission,
        Scenario::Fairness,
        Scenario::Worlds,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Start => "start",
            Scenario::Store => "store",
            Scenario::Create => "create",
            Scenario::Get => "get",
            Scenario::Patch => "patch",
            Scenario::List => "list",
            Scenario::WatchList => "watchlist",
            Scenario::RelistStorm => "relist-storm",
            Scenario::Fanout => "fanout",
            Scenario::FanoutSelective => "fanout-selective",
            Scenario::SlowWatchers => "slow-watchers",
            Scenario::IdleWatchers => "idle-watchers",
            Scenario::Restart => "restart",
            Scenario::Scale => "scale",
            Scenario::Crds => "crds",
            Scenario::Access => "access",
            Scenario::Admission => "admission",
            Scenario::Fairness => "fairness",
            Scenario::Worlds => "worlds",
        }
    }

    /// True for scenarios that start and stop the server, or do not measure a server.
    #[must_use]
    pub fn needs_a_server_of_its_own(self) -> bool {
        matches!(self, Scenario::Start | Scenario::Store | Scenario::Restart | Scenario::Scale | Scenario::Worlds)
    }

    pub(crate) async fn run(self, stage: &mut Stage) -> Result<(), Trouble> {
        match self {
            Scenario::Start => start::start(stage).await,
            Scenario::Store => storing::run(stage).await,
            Scenario::Create => requests::create(stage).await,
            Scenario::Get => requests::get(stage).await,
            Scenario::Patch => requests::patch(stage).await,
            Scenario::List => list::run(stage).await,
            Scenario::WatchList => informers::watchlist(stage).await,
            Scenario::RelistStorm => informers::relist_storm(stage).await,
            Scenario::Fanout => fanout::run(stage).await,
            Scenario::FanoutSelective => fanout::selective(stage).await,
            Scenario::SlowWatchers => fanout::slow(stage).await,
            Scenario::IdleWatchers => idle::run(stage).await,
            Scenario::Restart => start::restart(stage).await,
            Scenario::Scale => scale::run(stage).await,
            Scenario::Crds => definitions::run(stage).await,
            Scenario::Access => access::run(stage).await,
            Scenario::Admission => admission::run(stage).await,
            Scenario::Fairness => fairness::run(stage).await,
            Scenario::Worlds => worlds::run(stage).await,
        }
    }
}
