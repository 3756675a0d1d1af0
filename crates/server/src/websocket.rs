//! Watches over WebSocket: one event a message.

use http::{HeaderMap, header};

/// Whether a request asks for a WebSocket.
#[must_use]
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let has = |name: header::HeaderName, wanted: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|token| token.trim().eq_ignore_ascii_case(wanted))
    };
    has(header::UPGRADE, "websocket") && has(header::CONNECTION, "upgrade")
}
