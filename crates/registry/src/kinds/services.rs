//! Services: addresses and node ports are reserved for them.

use machinery::Status;
use machinery::json::Value;
use schema::kind::Kind;

use super::KindBehaviour;
use crate::meta;
use crate::reserve::Reservation;
use crate::reserve::addresses::AllocationError;

pub(super) struct Services;

impl KindBehaviour for Services {
    fn prepare(&self, reservation: &mut Reservation<'_>, service: &mut Value, old: Option<&Value>) {
        reservation.prepare_service(service, old);
    }

    fn reserve(
        &self,
        reservation: &mut Reservation<'_>,
        kind: &Kind,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if old.is_none() {
            let errors = schema::validation::validate_service_families(service);
            if !errors.is_empty() {
                return Err(Status::invalid(&kind.group_kind(), meta::name(service), &errors));
            }
        }
        reservation.allocate_service(service, old).map_err(|error| match error {
            AllocationError::Invalid(error) => Status::invalid(&kind.group_kind(), meta::name(service), &[error]),
            AllocationError::Full(why) => Status::internal(why),
            AllocationError::Unknown(status) => status,
        })
    }
}
