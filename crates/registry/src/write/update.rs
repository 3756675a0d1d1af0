//! PUT: an object replaced by another state of itself; and `revise`, the rules for every change by a client.

use std::future::Future;
use std::sync::Arc;

use cache::Item;
use machinery::json::{Value, json};
use machinery::options::UpdateOptions;
use machinery::{FieldError, Status};
use schema::kind::Kind;
use schema::managed::{Subject, Writer, keep_times_if_unchanged, track_update};

use super::commit::{self, Change, Committed, Next};
use super::create::{Tracking, create_draft};
use super::draft::Draft;
use super::{claim_rights, managed_versions, param_rights};
use crate::admission::changes::Changes;
use crate::admission::plugin::{Attributes, Operation, Options, States};
use crate::body;
use crate::kinds::KindBehaviour;
use crate::meta;
use crate::orders::Order;
use crate::read::view::{self, Outcome};
use crate::registry::Registry;
use crate::request::{Body, Target, WriteRequest};
use crate::reserve::Reservation;
use crate::roles::escalation;
use crate::subresources::scale;
use crate::versions;

/// Who changes an object, and how.
pub(crate) struct Author<'a> {
    pub(crate) manager: &'a str,
    /// The subresource that limits which part may change.
    pub(crate) subresource: Option<&'a str>,
    /// The subresource under which the change is recorded.
    pub(crate) tracked_as: Option<&'a str>,
    /// The object has its managed fields already: it was applied.
    pub(crate) applied: bool,
    /// The whole object was sent, so that its uid states which object is meant.
    pub(crate) replaces: bool,
    /// The request for the Scale of the object, which admission sees in place of the object.
    pub(crate) scale: Option<Attributes<'a>>,
}

impl<'a> Author<'a> {
    pub(crate) fn through(manager: &'a str, subresource: Option<&'a str>) -> Self {
        Author { manager, subresource, tracked_as: subresource, applied: false, replaces: false, scale: None }
    }
}

pub(crate) async fn update(
    registry: &Registry,
    request: WriteRequest<'_, UpdateOptions>,
    body: &Body,
) -> Result<Outcome, Status> {
    let WriteRequest { target, options, ctx } = request;
    let kind = &target.kind;
    let attributes = Attributes::new(Operation::Update, target, Options::Update(options), ctx);
    let mut object = body::object(kind, body, options.field_validation, ctx)?;
    body::check_namespace(target, &mut object)?;
    body::check_name(target, &object)?;
    schema::defaults::apply(kind, &mut object, None);
    let manager = ctx.manager(&options.field_manager);
    let creates = kind.rules.create_on_update && target.subresource.is_none();
    if creates && registry.storage().current(&registry.key(target)?).await?.is_none() {
        return create_draft(registry, &attributes, Draft::new(object), Tracking::Creator(&manager)).await;
    }
    let author = Author { replaces: true, ..Author::through(&manager, target.subresource.as_deref()) };
    let committed = rewrite(registry, &attributes, &author, |_| Ok(object.clone())).await?;
    answer(registry, target, committed).await
}

/// The answer to a change: the object as it is now.
pub(crate) async fn answer(registry: &Registry, target: &Target, committed: Committed) -> Result<Outcome, Status> {
    Ok(Outcome::new(200, registry.converter().prepare_view(committed.into_view(target)?).await?))
}

/// Commits a client's change. `change` gets the object as it is stored (as it is shown, where a webhook converts) and returns
/// the new one in the version of the endpoint; then it is revised by the rules of the kind.
pub(crate) async fn rewrite(
    registry: &Registry,
    attributes: &Attributes<'_>,
    author: &Author<'_>,
    change: impl FnMut(&Value) -> Result<Value, Status> + Send,
) -> Result<Committed, Status> {
    rewrite_with(registry, attributes, author, AtOnce(change)).await
}

/// As [`rewrite`], for a change that has to wait for something.
pub(crate) async fn rewrite_with(
    registry: &Registry,
    attributes: &Attributes<'_>,
    author: &Author<'_>,
    change: impl Make,
) -> Result<Committed, Status> {
    let mut change = Rewrite { registry, attributes, author: Some(author), change, order: None };
    let committed =
        commit::change(registry, (attributes.target, attributes.ctx), attributes.dry_run, &mut change).await?;
    let Some(order) = change.order.take().filter(|_| !attributes.dry_run) else { return Ok(committed) };
    let status = order().await;
    let done = |old: &Value| {
        let mut new = old.clone();
        new["status"] = status.clone();
        Ok(new)
    };
    Box::pin(rewrite_internally(registry, attributes, done)).await
}

/// Commits a change that the server makes of its own: nothing of it is revised or refused but by quotas.
pub(crate) async fn rewrite_internally(
    registry: &Registry,
    attributes: &Attributes<'_>,
    change: impl FnMut(&Value) -> Result<Value, Status> + Send,
) -> Result<Committed, Status> {
    let mut change = Rewrite { registry, attributes, author: None, change: AtOnce(change), order: None };
    commit::change(registry, (attributes.target, attributes.ctx), attributes.dry_run, &mut change).await
}

struct Rewrite<'a, F> {
    registry: &'a Registry,
    attributes: &'a Attributes<'a>,
    author: Option<&'a Author<'a>>,
    change: F,
    /// What the newest attempt asks for.
    order: Option<Order>,
}

/// Makes the new state of an object from the one that is shown; called again after each conflict.
pub(crate) trait Make: Send {
    fn make(&mut self, old: &Value) -> impl Future<Output = Result<Value, Status>> + Send;
}

/// A change that waits for nothing.
struct AtOnce<F>(F);

impl<F: FnMut(&Value) -> Result<Value, Status> + Send> Make for AtOnce<F> {
    fn make(&mut self, old: &Value) -> impl Future<Output = Result<Value, Status>> + Send {
        std::future::ready((self.0)(old))
    }
}

impl<F: Make> Change for Rewrite<'_, F> {
    async fn next(&mut self, item: &Arc<Item>, reservation: &mut Reservation<'_>) -> Result<Next, Status> {
        let (registry, attributes) = (self.registry, self.attributes);
        let kind = &attributes.target.kind;
        let old = view::parse_for_write(item)?;
        // An object that a webhook converts is changed in the version it is shown in, and shown so afterwards.
        let converted = registry.converter().converted(kind, item).await?;
        let before = converted.as_ref().unwrap_or(&old);
        let mut new = self.change.make(before).await?;
        if let Some(author) = self.author {
            new = revise(registry, attributes, author, before, new, reservation).await?;
            if let Some(orders) = registry.settings().orders.as_deref().filter(|orders| orders.has(&kind.collection)) {
                self.order = orders.take(before, &mut new)?;
            }
        }
        let shown = converted.is_some().then(|| new.clone());
        if shown.is_some() {
            new = registry.converter().to_storage(kind, new).await?;
        }
        meta::of_mut(&mut new).insert("resourceVersion", item.revision().to_string().into());
        if new == old {
            return Ok(Next::Keep);
        }
        if removes(attributes.behaviour, &old, &new) {
            return Ok(Next::Remove { old, last: shown.unwrap_or(new) });
        }
        registry.admission().reserve_quota(attributes, (Some(&old), &new), reservation).await?;
        Ok(Next::Write { old: Some(old), new, shown })
    }
}

/// Whether an update removes an object that is being deleted and that only its finalizers held.
fn removes(behaviour: &dyn KindBehaviour, old: &Value, new: &Value) -> bool {
    meta::is_deleting(old)
        && meta::finalizers(new).is_empty()
        && meta::grace_period(old).unwrap_or_default() == 0
        && !behaviour.is_held(new)
}

/// The next state of an object: `new` (in the endpoint's version, defaulted) put on top of `old` (as stored), with what
/// clients may not change kept, admitted, validated and its managed fields brought up to date. In the storage version.
async fn revise(
    registry: &Registry,
    attributes: &Attributes<'_>,
    author: &Author<'_>,
    old: &Value,
    mut new: Value,
    reservation: &mut Reservation<'_>,
) -> Result<Value, Status> {
    let Attributes { target, ctx, behaviour, .. } = *attributes;
    let (kind, chain) = (&target.kind, registry.admission());
    precondition(target, old, &new, author)?;
    let mut shown_old = old.clone();
    versions::show(kind, &mut shown_old)?;
    keep_metadata(&shown_old, &mut new);
    meta::of_mut(&mut new).insert("resourceVersion", shown_old["metadata"]["resourceVersion"].clone());
    let now = meta::timestamp(registry.now());
    let ty = body::type_of_kind(kind)?;
    let writer = Writer { manager: author.manager, subresource: author.tracked_as.unwrap_or_default(), time: &now };
    if !author.applied {
        track_update(&Subject::new(kind, &ty), Some(&shown_old), &mut new, &writer);
        managed_versions::forget_unknown(kind, &mut new);
    }
    let changes = match author.scale {
        None => chain.mutate(attributes, &mut new, Some(&shown_old)).await?,
        // The Scale was admitted before it was written into the object.
        Some(_) => Changes::default(),
    };
    if let Some(warning) = meta::dedupe_owners(&mut new, " after mutating admission happens") {
        ctx.warnings.push(warning);
    }
    if behaviour.grants_rights() {
        escalation::check(registry, attributes, &new, Some(&shown_old)).await?;
    }
    match author.subresource {
        Some(name) => schema::strategy::prepare_for_subresource_update(kind, name, &mut new, &shown_old, &now),
        None => {
            schema::strategy::prepare_for_update(kind, &mut new, &shown_old);
            behaviour.prepare(reservation, &mut new, Some(&shown_old));
        }
    }
    keep_deletion_time(&shown_old, &mut new);
    // What the steps before have looked at and left alone is what it was, and need not be looked at again.
    new.share_members(&shown_old);
    let mut refused = claim_rights::check(registry, attributes, &new, &shown_old).await;
    if let Some(orders) = &registry.settings().orders {
        refused.extend(orders.check(&kind.collection, &new));
    }
    validate(attributes, author, &shown_old, &new, refused)
        .map_err(|refusal| if attributes.explains() { changes.explain(refusal) } else { refusal })?;
    if author.subresource.is_none() {
        let warnings = schema::warnings::on_write(kind, &new, Some(&shown_old), false);
        warnings.into_iter().for_each(|text| ctx.warnings.push(text));
    }
    param_rights::check(registry, attributes, &new, Some(&shown_old)).await?;
    if author.subresource.is_none() {
        behaviour.reserve(reservation, kind, &mut new, Some(&shown_old))?;
    }
    let mut draft = Draft::following(&shown_old, new);
    draft.normalise(kind)?;
    let mut new = draft.object;
    keep_times_if_unchanged(&shown_old, &mut new);
    match &author.scale {
        None => chain.validate(attributes, States::shown(Some(&shown_old), &new)).await?,
        Some(request) => {
            let (old, new) = (scale::scale_of(request.target, &shown_old), scale::scale_of(request.target, &new));
            chain.validate(request, States::new(Some(&old), Some(&new))).await?;
        }
    }
    versions::to_storage(kind, &mut new)?;
    Ok(new)
}

/// Validates the next state by the rules of its kind. Warnings are sent whether or not the write is accepted.
/// `errors` are those that are known already.
fn validate(
    attributes: &Attributes<'_>,
    author: &Author<'_>,
    old: &Value,
    new: &Value,
    mut errors: Vec<FieldError>,
) -> Result<(), Status> {
    let kind = &attributes.target.kind;
    let mut warnings = Vec::new();
    errors.extend(match author.subresource {
        Some(name) => schema::validation::validate_subresource_update(kind, name, new, old, &mut warnings),
        None => schema::validation::validate_update(kind, new, old, &mut warnings),
    });
    warnings.into_iter().for_each(|text| attributes.ctx.warnings.push(text));
    if !author.replaces {
        errors.extend(schema::validation::validate_patched(kind, new, old));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&body::error_kind(kind), attributes.target.name(), &errors))
}

/// Checks the revision and uid that a client states.
fn precondition(target: &Target, old: &Value, new: &Value, author: &Author<'_>) -> Result<(), Status> {
    let kind = &target.kind;
    let (stated_uid, uid) = (meta::uid(new), meta::uid(old));
    if author.replaces && !stated_uid.is_empty() && stated_uid != uid {
        return Err(wrong_uid(target, stated_uid, uid));
    }
    let stated = meta::resource_version(new);
    if stated.is_empty() || stated == "0" {
        return if kind.rules.unconditional_update { Ok(()) } else { Err(revision_needed(kind, target)) };
    }
    if stated.parse::<u64>().is_err() {
        let stated = machinery::go_text::quote(stated);
        return Err(Status::unmapped(format!("strconv.ParseUint: parsing {stated}: invalid syntax")));
    }
    if stated == meta::resource_version(old) { Ok(()) } else { Err(Status::modified(&target.gr(), target.name())) }
}

/// Returns the refusal of a write for an object of another uid, in the words of the reference's storage.
pub(crate) fn wrong_uid(target: &Target, stated: &str, uid: &str) -> Status {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {stated}, UID in object meta: {uid}",
        storage_key(target)
    );
    Status::conflict(&target.gr(), target.name(), why)
}

/// Returns the key that the reference stores an object at; old resources have names of their own there.
fn storage_key(target: &Target) -> String {
    let (group, plural) = (target.kind.gvk.group.as_str(), target.kind.plural.as_str());
    let folder = match (group, plural) {
        ("", "replicationcontrollers") => "controllers",
        ("", "services") => "services/specs",
        ("", "endpoints") => "services/endpoints",
        ("", "nodes") => "minions",
        ("networking.k8s.io", "ingresses") => "ingress",
        (_, plural) => plural,
    };
    let own = target.kind.custom || matches!(group, "apiextensions.k8s.io" | "apiregistration.k8s.io");
    let group = if own { format!("{group}/") } else { String::new() };
    let namespace = target.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("/registry/{group}{folder}/{namespace}{}", target.name())
}

fn revision_needed(kind: &Kind, target: &Target) -> Status {
    let error = FieldError::invalid("metadata.resourceVersion", json!(0), "must be specified for an update");
    Status::invalid(&kind.group_resource(), target.name(), &[error])
}

/// Keeps the stored metadata: some members whatever the client sends, others only if it sends nothing. Validation refuses
/// what it sends otherwise.
fn keep_metadata(old: &Value, new: &mut Value) {
    const ALWAYS: [&str; 3] = ["creationTimestamp", "generation", "selfLink"];
    const UNLESS_SENT: [&str; 3] = ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"];
    let metadata = meta::of_mut(new);
    for member in ALWAYS.into_iter().chain(UNLESS_SENT) {
        let sent = metadata.get(member).is_some_and(|sent| !sent.is_null() && sent != "");
        if sent && UNLESS_SENT.contains(&member) {
            continue;
        }
        match old["metadata"].get(member) {
            Some(kept) => {
                metadata.insert(member.to_owned(), kept.clone());
            }
            None => {
                metadata.shift_remove(member);
            }
        }
    }
}

/// Keeps the time of a deletion that has begun, whatever a client or a webhook sends.
fn keep_deletion_time(old: &Value, new: &mut Value) {
    if let Some(time) = old["metadata"].get("deletionTimestamp").filter(|time| time.is_string()) {
        meta::of_mut(new).insert("deletionTimestamp", time.clone());
    }
}
