//! What the answer of a webhook means that has no review: its status, in the words of the reference's client.

use http::header;
use machinery::go_text::quote;
use machinery::json::{self, Value};
use outbound::Answer;

/// Bytes of a text answer that a message repeats.
const TEXT_BYTES_MAX: usize = 2048;

/// The body of an answer with a code of success.
pub(super) fn body(answer: Answer) -> Result<bytes::Bytes, String> {
    let code = answer.status.as_u16();
    let content_type = answer.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !(200..=206).contains(&code) {
        return Err(status_message(&answer.body).unwrap_or_else(|| code_message(code, content_type, &answer.body)));
    }
    if answer.body.is_empty() {
        let content_type = content_type.unwrap_or("application/json");
        return Err(format!("0-length response with status code: {code} and content type: {content_type}"));
    }
    Ok(answer.body)
}

/// The message of a `Status` that a webhook answered with.
fn status_message(body: &[u8]) -> Option<String> {
    let status: Value = json::from_slice(body).ok()?;
    if status["kind"] != "Status" || status["status"] != "Failure" {
        return None;
    }
    status["message"].as_str().map(str::to_owned)
}

fn code_message(code: u16, content_type: Option<&str>, body: &[u8]) -> String {
    let is_text = content_type.is_none_or(|value| value.trim_start().to_ascii_lowercase().starts_with("text/"));
    let text = if is_text {
        String::from_utf8_lossy(&body[..body.len().min(TEXT_BYTES_MAX)]).trim().to_owned()
    } else {
        "unknown".to_owned()
    };
    let fixed = match code {
        409 => "the server reported a conflict",
        404 => "the server could not find the requested resource",
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => return text,
        406 if text.is_empty() || text == "unknown" => {
            "the server was unable to respond with a content type that the client supports"
        }
        406 => return text,
        405 => "the server does not allow this method on the requested resource",
        422 => "the server rejected our request due to an error in our request",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        429 => "the server has received too many requests and has asked us to try again later",
        500.. => {
            return format!("an error on the server ({}) has prevented the request from succeeding", quote(&text));
        }
        code => return format!("the server responded with the status code {code} but did not return more information"),
    };
    fixed.to_owned()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;

    fn of(code: u16, content_type: Option<&'static str>, text: &'static str) -> Result<Bytes, String> {
        let mut headers = HeaderMap::new();
        if let Some(value) = content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
        }
        let status = StatusCode::from_u16(code).unwrap();
        body(Answer { status, headers, body: Bytes::from_static(text.as_bytes()) })
    }

    #[test]
    fn wh_33_codes_have_the_texts_of_the_reference() {
        for (code, content_type, text, why) in [
            (
                500,
                Some("text/plain"),
                "oops\n",
                "an error on the server (\"oops\") has prevented the request from succeeding",
            ),
            (
                500,
                Some("application/json"),
                "oops",
                "an error on the server (\"unknown\") has prevented the request from succeeding",
            ),
            (500, None, "a\"b", "an error on the server (\"a\\\"b\") has prevented the request from succeeding"),
            (404, None, "", "the server could not find the requested resource"),
            (400, None, "", "the server rejected our request for an unknown reason"),
            (503, None, "", "the server is currently unable to handle the request"),
            (302, None, "", "the server responded with the status code 302 but did not return more information"),
            (403, Some("text/plain; charset=utf-8"), "no way", "no way"),
            (500, Some("application/json"), r#"{"kind":"Status","status":"Failure","message":"mine"}"#, "mine"),
            (
                200,
                Some("application/json"),
                "",
                "0-length response with status code: 200 and content type: application/json",
            ),
        ] {
            assert_eq!(of(code, content_type, text).unwrap_err(), why);
        }
        assert_eq!(of(201, None, "{}").unwrap(), "{}");
    }
}
